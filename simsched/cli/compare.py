"""`simsched compare`: policies of a run, two runs, a run with expected times, and the seeds that a comparison needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.output import json_option, print_json, table
from simsched.errors import input_error, nearest

if TYPE_CHECKING:
    from simsched.report import TextTable
    from simsched.results import Estimate, Row, Run
    from simsched.results.compare import DifferenceRow, Pair, TwoRuns
    from simsched.results.expected_times import Agreement

_DIFFERENT = 1
_MOST_LISTED = 10

metrics_option = click.option(
    "-m", "--metric", "metrics", multiple=True, metavar="NAME",
    help="Show this metric (see `simsched list metrics`; makespan_h asks for hours). Repeatable.",
)  # fmt: skip


def layout_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option to print tables for other programs."""
    for layout, told in (
        ("latex", "LaTeX (booktabs)"),
        ("markdown", "Markdown"),
        ("csv", "CSV, one row per metric"),
    ):
        command = click.option(f"--{layout}", "layout", flag_value=layout, help=f"Print as {told}.")(command)
    return command


#: The options of each form of the command; the first compares the policies of one run.
_OPTIONS_OF = {
    "RUN alone": {"--reference", "--metric", "--latex, --markdown and --csv"},
    "OTHER": {"--metric"},
    "--expected": {"--policy"},
    "--plan-seeds": {"--metric", "--difference"},
}


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("other", metavar="[OTHER]", required=False, type=click.Path(path_type=Path))
@click.option("--reference", metavar="LABEL", help="Policy to compare the others with. [default: the first]")
@click.option("--expected", metavar="CSV", type=click.Path(path_type=Path),
              help="Compare every job's completion time with this list (workload,job,jct_s).")  # fmt: skip
@click.option("--policy", metavar="LABEL", help="With --expected: check only the cells of this policy.")
@click.option("--plan-seeds", is_flag=True, help="Compute how many seeds it takes to distinguish the policies.")
@click.option("--difference", type=click.FloatRange(min=0, max=10, min_open=True), metavar="SHARE",
              help="With --plan-seeds: the relative difference of two means to detect. [default: 0.05]")  # fmt: skip
@metrics_option
@layout_options
@json_option
def compare(
    folder: Path, other: Path | None, reference: str | None, expected: Path | None, policy: str | None,
    plan_seeds: bool, difference: float | None, metrics: tuple[str, ...], layout: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Compare the policies of a run with a reference, seed by seed.

    With OTHER, a run of the same policies on the same workloads, shows how each policy's metrics differ, and whether
    both runs rank the policies alike. The runs may use, for instance, fitted and measured applications, or two
    versions.

    With --expected, compares the completion time of every job. The exit code is 0 if all jobs are equal, and 1 if any
    differs. A list with other jobs than the run's is rejected.

    With --plan-seeds, RUN is a pilot with a few seeds. Each comparison with the reference has a power of 80 % for the
    difference, with a family-wise error rate of 5 %. The spread is an upper bound (80 %) of the pilot's.
    """
    _check_form(
        {"OTHER": other, "--expected": expected, "--plan-seeds": plan_seeds},
        {"--reference": reference, "--policy": policy, "--difference": difference, "--metric": metrics,
         "--latex, --markdown and --csv": layout},
    )  # fmt: skip
    if other is not None:
        _compare_runs(folder, other, metrics, as_json=as_json)
    elif expected is not None:
        _compare_expected(folder, expected, policy, as_json=as_json)
    elif plan_seeds:
        _plan_seeds(folder, metrics or ("jct_mean_s",), difference or 0.05, as_json=as_json)
    else:
        from simsched.results import read_run

        run = read_run(folder)
        if as_json:
            print_json(comparison_json(run, reference))
        else:
            print_comparison(run, reference, metrics, layout)


def _check_form(forms: Mapping[str, object], options: Mapping[str, object]) -> None:
    """Raise `InputError` for two forms of the command at once, or an option of another form."""
    given = [form for form, value in forms.items() if value]
    if len(given) > 1:
        raise input_error(given[1], f"cannot be combined with {given[0]}", "leave one of them out")
    form = given[0] if given else "RUN alone"
    for name, value in options.items():
        if value and name not in _OPTIONS_OF[form]:
            raise input_error(name, f"has no effect with {form}", "leave it out")


def _compare_runs(folder: Path, other: Path, metrics: tuple[str, ...], *, as_json: bool) -> None:
    from simsched.results import read_run
    from simsched.results.compare import COMPARED_METRICS, compare_runs

    runs = read_run(folder), read_run(other)
    found = compare_runs(*runs, metrics or COMPARED_METRICS)
    if as_json:
        print_json(_runs_json(found))
    else:
        _print_runs(found, {cell.policy: cell.knows for run in runs for cell in run.cells})


def _compare_expected(folder: Path, expected: Path, policy: str | None, *, as_json: bool) -> None:
    from simsched.results.expected_times import compare_expected

    agreements = compare_expected(folder, expected)
    if policy is not None:
        labels = {agreement.cell.policy for agreement in agreements}
        agreements = [agreement for agreement in agreements if agreement.cell.policy == policy]
        if not agreements:
            raise input_error(folder, f"no policy is labelled '{policy}'", nearest(policy, labels))
    if as_json:
        print_json([_agreement_json(agreement) for agreement in agreements])
    else:
        _print_agreements(agreements)
    if not all(agreement.exact for agreement in agreements):
        click.get_current_context().exit(_DIFFERENT)


def _plan_seeds(folder: Path, metrics: tuple[str, ...], difference: float, *, as_json: bool) -> None:
    from simsched.results import read_run
    from simsched.results.compare import plan

    if len(metrics) > 1:
        raise input_error("--metric", "seeds are planned for one metric", "give one")
    plans = plan(read_run(folder), metrics[0], difference)
    if as_json:
        print_json([asdict(row) for row in plans])
        return
    rows = [
        (
            f"{row.row} / {row.reference}",
            str(row.seeds),
            "-" if row.ratio is None else f"{row.ratio.mean:.3f}",
            "-" if row.spread is None else f"{row.spread:.3f}",
            "-" if row.needed is None else f"{row.needed:,}",
        )
        for row in plans
    ]
    headers = ("comparison", "pilot's seeds", f"ratio of {metrics[0]}", "sd of its logarithm", "seeds needed")
    click.echo(table(headers, rows))
    if all(row.needed for row in plans):
        most = max((row.needed or 0 for row in plans), default=0)
        click.echo(f"All at once, for a difference of {100 * difference:g} %: -o seeds={most}")
    else:
        click.echo("- if the pilot has a single seed, a value of 0 or less, or far too large a spread.")


def print_comparison(
    run: Run,
    reference: str | None,
    metrics: tuple[str, ...] = (),
    layout: str | None = None,
    *,
    differences: bool = True,
) -> None:
    """Print a run's metrics, and differences from the reference if there are several policies."""
    from simsched.cli.output import print_table
    from simsched.report import comparison_table, difference_table, to_csv
    from simsched.results import comparison

    rows = comparison(run, run.replicated_over)
    if layout == "csv":
        click.echo(to_csv(rows, metrics or None, run.lost), nl=False)
        return
    own = run.name if run.folder.name.startswith(run.name) else f"{run.folder.name} ({run.name})"
    shown = [_with_source(comparison_table(rows, metrics or None, title=own, run=run), run)]
    found = _differences(rows, reference) if differences else []
    if found:
        shown.append(difference_table(found, metrics or None))
    for number, one in enumerate(whole.pivoted() for whole in shown):
        if number:
            click.echo()
        if layout is None:
            print_table(one)
        else:
            click.echo(one.latex() if layout == "latex" else one.markdown(), nl=False)


def _with_source(shown: TextTable, run: Run) -> TextTable:
    from dataclasses import replace

    source = run.experiment.get("published_source")
    return replace(shown, notes=(*shown.notes, f"Published: {source}.")) if source and run.published else shown


def _differences(rows: list[Row], reference: str | None) -> list[DifferenceRow]:
    from simsched.results import paired_differences

    return paired_differences(rows, rows[0].policy if reference is None else reference)


def comparison_json(run: Run, reference: str | None) -> dict[str, Any]:
    """Return a run's rows, with each metric's estimate, and paired differences as plain data."""
    from simsched.results import comparison, what_was_run

    rows = comparison(run, run.replicated_over)
    return {
        "name": run.name,
        "folder": str(run.folder),
        "what_was_run": what_was_run(run.cells, run.changed),
        "changed": list(run.changed),
        "failed": dict(run.failed),
        "published_left_out": run.published_left_out,
        "rows": [
            {
                "policy": row.policy,
                "point": dict(row.point),
                "copies": row.copies,
                "metrics": {name: _estimate_json(row.estimate(name)) for name in sorted(row.values)},
                "published": dict(row.published),
                "knows": dict(row.knows),
            }
            for row in rows
        ],
        "differences": [
            {
                "policy": one.row.policy,
                "point": dict(one.row.point),
                "reference": one.reference.policy,
                "relative": {name: _estimate_json(pair.relative) for name, pair in sorted(one.differences.items())},
            }
            for one in _differences(rows, reference)
        ],
    }


def _estimate_json(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {"mean": estimate.mean, "low": estimate.low, "high": estimate.high, "n": estimate.n}


def _print_runs(found: TwoRuns, knows: Mapping[str, Mapping[str, str]]) -> None:
    """Print both tables; `knows` gives each policy's signals by label."""
    from simsched.knowledge import legend, marked

    rows = [
        (
            marked(line.policy, knows[line.policy]),
            line.metric.title + (f" ({line.metric.unit})" if line.metric.unit else ""),
            *_pair_cells(line.mean),
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
            *(text for policy in policies for text in _pair_or_dashes(lines[policy].by_workload.get(ranking.workload))),
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


def _pair_cells(pair: Pair) -> tuple[str, str, str]:
    return f"{pair.one:.4g}", f"{pair.other:.4g}", f"{100 * pair.relative:+.1f}"


def _pair_or_dashes(pair: Pair | None) -> tuple[str, str, str]:
    return ("-", "-", "-") if pair is None else _pair_cells(pair)


def _runs_json(found: TwoRuns) -> dict[str, Any]:
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


def _agreement_json(one: Agreement) -> dict[str, Any]:
    return {
        "policy": one.cell.policy,
        "workload": one.workload,
        "seed": one.cell.seed,
        "equal": one.equal,
        "different": [{"job": job.job, "expected_s": job.expected_s, "found_s": job.found_s} for job in one.different],
        "largest_difference_s": one.largest_difference_s,
        "expected_mean_s": one.expected_mean_s,
        "found_mean_s": one.found_mean_s,
    }


def _print_agreements(found: list[Agreement]) -> None:
    headers = ("policy", "workload", "equal", "different", "largest (s)", "mean (s)", "expected (s)")
    rows = [
        (
            one.cell.policy,
            one.workload,
            str(one.equal),
            str(len(one.different)),
            str(one.largest_difference_s),
            f"{one.found_mean_s:.2f}",
            f"{one.expected_mean_s:.2f}",
        )
        for one in found
    ]
    click.echo(table(headers, rows, left=2))
    jobs = sum(one.equal + len(one.different) for one in found)
    click.echo(f"{sum(one.equal for one in found)} of {jobs} jobs equal")
    for one in found:
        for job in one.different[:_MOST_LISTED]:
            click.echo(f"  {one.cell.policy}, {one.workload}, {job.job}: {job.found_s} s, expected {job.expected_s} s")
        if len(one.different) > _MOST_LISTED:
            click.echo(f"  ... and {len(one.different) - _MOST_LISTED} more of {one.workload}")
