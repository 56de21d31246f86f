"""`simsched compare-runs`: compare two runs of the same policies and workloads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.output import json_option, print_json, table
from simsched.cli.results import metrics_option

if TYPE_CHECKING:
    from simsched.results import Pair, TwoRuns


@click.command("compare-runs")
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("beside", metavar="OTHER", type=click.Path(path_type=Path))
@metrics_option
@json_option
def compare_runs(folder: Path, beside: Path, metrics: tuple[str, ...], as_json: bool) -> None:
    """Compare RUN with OTHER, a run of the same policies on the same workloads.

    Shows how each policy's metrics differ, and whether both runs rank the policies alike. The runs may use, for
    instance, fitted and measured applications, or two versions.
    """
    from simsched.results import COMPARED_METRICS, compare_runs as compared, read_run

    runs = read_run(folder), read_run(beside)
    found = compared(*runs, metrics or COMPARED_METRICS)
    if as_json:
        print_json(_as_json(found))
    else:
        _print(found, {cell.policy: cell.knows for run in runs for cell in run.cells})


def _print(found: TwoRuns, knows: Mapping[str, Mapping[str, str]]) -> None:
    """Print both tables; `knows` gives each policy's signals by label."""
    from simsched.knowledge import legend, marked

    rows = [
        (
            marked(line.policy, knows[line.policy]),
            line.metric.title + (f" ({line.metric.unit})" if line.metric.unit else ""),
            *_shown(line.mean),
            f"{100 * line.largest:+.1f}",
        )
        for line in found.lines
    ]
    click.echo(table(("policy", "mean over workloads", "RUN", "OTHER", "%", "largest %"), rows, left=2))
    click.echo()
    policies = list(dict.fromkeys(line.policy for line in found.lines))
    first = found.lines[0].metric
    lines = {line.policy: line for line in found.lines if line.metric == first}
    headers = ["workload"] + [
        text for policy in policies for text in (f"{marked(policy, knows[policy])}\nRUN", "\nOTHER", "\n%")
    ]
    rows_of = [
        (
            ranking.workload,
            *(text for policy in policies for text in _cells(lines[policy].by_workload.get(ranking.workload))),
            " < ".join(ranking.one)
            if ranking.same
            else f"{' < '.join(ranking.one)}, OTHER {' < '.join(ranking.other)}",
        )
        for ranking in found.rankings
    ]
    click.echo(f"{first.title}{f' ({first.unit})' if first.unit else ''} by workload, and the policies by mean JCT")
    click.echo(table((*headers, "ranking"), rows_of))
    same = sum(ranking.same for ranking in found.rankings)
    click.echo(f"Same ranking on {same} of {len(found.rankings)} workloads. 'largest' is that of any one workload.")
    for note in legend({policy: knows[policy] for policy in policies}):
        click.echo(note)


def _shown(pair: Pair) -> tuple[str, str, str]:
    return f"{pair.one:.4g}", f"{pair.other:.4g}", f"{100 * pair.relative:+.1f}"


def _cells(pair: Pair | None) -> tuple[str, str, str]:
    return ("-", "-", "-") if pair is None else _shown(pair)


def _as_json(found: TwoRuns) -> dict[str, Any]:
    return {
        "policies": [
            {
                "policy": line.policy,
                "metric": line.metric.key,
                "unit": line.metric.unit,
                "run": line.mean.one,
                "other": line.mean.other,
                "relative": line.mean.relative,
                "workloads": {
                    name: {"run": pair.one, "other": pair.other, "relative": pair.relative}
                    for name, pair in line.by_workload.items()
                },
            }
            for line in found.lines
        ],
        "rankings": [
            {"workload": one.workload, "run": list(one.one), "other": list(one.other), "same": one.same}
            for one in found.rankings
        ],
    }
