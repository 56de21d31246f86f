"""`simsched compare`: policies of a run, two runs, a run with expected times, and the seeds that a comparison needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.options import JSON, LAYOUT, METRICS, RUN_FOLDER, arg, command, opt
from simsched.cli.output import print_json, print_table, table
from simsched.errors import input_error, nearest

if TYPE_CHECKING:
    from simsched.report import TextTable
    from simsched.results import Estimate, Row, Run
    from simsched.results.compare import DifferenceRow, Pair, TwoRuns
    from simsched.results.expected_times import Agreement
    from simsched.results.metrics import Reading

_DIFFERENT = 1
_MOST_LISTED = 10
#: The options of each form of the command; the first compares the policies of one run.
_OPTIONS_OF = {
    "RUN alone": {"--reference", "--metric", "--latex, --markdown and --csv"},
    "OTHER": {"--metric"},
    "--expected": {"--policy"},
    "--plan-seeds": {"--metric", "--difference"},
}


@command()
def compare(
    folder: Path = RUN_FOLDER,
    other: Path | None = arg("[OTHER]"),
    *,
    reference: str | None = opt("Policy to compare the others with. [default: the first]", metavar="LABEL"),
    expected: Path | None = opt(
        "Compare every job's completion time with this list (workload,job,jct_s).", metavar="CSV"
    ),
    policy: str | None = opt("With --expected: check only the cells of this policy.", metavar="LABEL"),
    plan_seeds: bool = opt("Compute how many seeds it takes to distinguish the policies."),
    difference: float | None = opt(
        "With --plan-seeds: the relative difference of two means to detect. [default: 0.05]",
        metavar="SHARE",
        type=click.FloatRange(min=0, max=10, min_open=True),
    ),
    metrics: tuple[str, ...] = METRICS,
    layout: str | None = LAYOUT,
    as_json: bool = JSON,
) -> None:
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

        show_comparison(read_run(folder), reference, metrics, layout, as_json=as_json)


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
        (f"{row.row} / {row.reference}", str(row.seeds), "-" if row.ratio is None else f"{row.ratio.mean:.3f}",
         "-" if row.spread is None else f"{row.spread:.3f}", "-" if row.needed is None else f"{row.needed:,}")
        for row in plans
    ]  # fmt: skip
    headers = ("comparison", "pilot's seeds", f"ratio of {metrics[0]}", "sd of its logarithm", "seeds needed")
    click.echo(table(headers, rows))
    if all(row.needed for row in plans):
        most = max((row.needed or 0 for row in plans), default=0)
        click.echo(f"All at once, for a difference of {100 * difference:g} %: -o seeds={most}")
    else:
        click.echo("- if the pilot has a single seed, a value of 0 or less, or far too large a spread.")


def show_comparison(
    run: Run,
    reference: str | None,
    metrics: tuple[str, ...] = (),
    layout: str | None = None,
    *,
    differences: bool = True,
    as_json: bool = False,
) -> None:
    """Print a run's metrics, and differences from the reference if there are several policies; or all as JSON."""
    from simsched.report import comparison_table, difference_table, to_csv
    from simsched.results import comparison

    if as_json:
        print_json(comparison_json(run, reference))
        return
    rows = comparison(run, run.replicated_over)
    if layout == "csv":
        click.echo(to_csv(rows, metrics or None, run.lost), nl=False)
        return
    own = run.name if run.folder.name.startswith(run.name) else f"{run.folder.name} ({run.name})"
    tables = [_with_source(comparison_table(rows, metrics or None, title=own, run=run), run)]
    pairs = _differences(rows, reference) if differences else []
    if pairs:
        tables.append(difference_table(pairs, metrics or None))
    for number, one in enumerate(whole.pivoted() for whole in tables):
        if number:
            click.echo()
        if layout is None:
            print_table(one)
        else:
            click.echo(one.latex() if layout == "latex" else one.markdown(), nl=False)


def _with_source(shown: TextTable, run: Run) -> TextTable:
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
    return None if estimate is None else {name: getattr(estimate, name) for name in ("mean", "low", "high", "n")}


def _print_runs(found: TwoRuns, knows: Mapping[str, Mapping[str, str]]) -> None:
    """Print both tables; `knows` gives each policy's signals by label."""
    from simsched.knowledge import legend, marked

    rows = [
        (marked(line.policy, knows[line.policy]), _with_unit(line.metric), *_pair_cells(line.mean),
         f"{100 * line.largest:+.1f}")
        for line in found.lines
    ]  # fmt: skip
    click.echo(table(("policy", "mean over workloads", "RUN", "OTHER", "%", "largest %"), rows, left=2))
    click.echo()
    first = found.lines[0].metric
    lines = {line.policy: line for line in found.lines if line.metric == first}
    headers = [text for policy in lines for text in (f"{marked(policy, knows[policy])}\nRUN", "\nOTHER", "\n%")]
    by_workload = [
        (
            one.workload,
            *(text for line in lines.values() for text in _pair_cells(line.by_workload.get(one.workload))),
            " < ".join(one.one) + ("" if one.same else f", OTHER {' < '.join(one.other)}"),
        )
        for one in found.rankings
    ]
    click.echo(f"{_with_unit(first)} by workload, and the policies by mean JCT")
    click.echo(table(("workload", *headers, "ranking"), by_workload))
    same = sum(one.same for one in found.rankings)
    click.echo(f"Same ranking on {same} of {len(found.rankings)} workloads. 'largest' is that of any one workload.")
    for note in legend({policy: knows[policy] for policy in lines}):
        click.echo(note)


def _with_unit(metric: Reading) -> str:
    return f"{metric.title} ({metric.unit})" if metric.unit else metric.title


def _pair_cells(pair: Pair | None) -> tuple[str, str, str]:
    if pair is None:
        return "-", "-", "-"
    return f"{pair.one:.4g}", f"{pair.other:.4g}", f"{100 * pair.relative:+.1f}"


def _pair_json(pair: Pair) -> dict[str, float | None]:
    return {"run": pair.one, "other": pair.other, "relative": pair.relative}


def _runs_json(found: TwoRuns) -> dict[str, Any]:
    return {
        "policies": [
            {
                "policy": line.policy, "metric": line.metric.key, "unit": line.metric.unit, **_pair_json(line.mean),
                "workloads": {name: _pair_json(pair) for name, pair in line.by_workload.items()},
            }
            for line in found.lines
        ],
        "rankings": [
            {"workload": one.workload, "run": list(one.one), "other": list(one.other), "same": one.same}
            for one in found.rankings
        ],
    }  # fmt: skip


def _agreement_json(one: Agreement) -> dict[str, Any]:
    counts = ("workload", "equal", "largest_difference_s", "expected_mean_s", "found_mean_s")
    different = [{"job": job.job, "expected_s": job.expected_s, "found_s": job.found_s} for job in one.different]
    own = {name: getattr(one, name) for name in counts}
    return {"policy": one.cell.policy, "seed": one.cell.seed, "different": different, **own}


def _print_agreements(found: Sequence[Agreement]) -> None:
    headers = ("policy", "workload", "equal", "different", "largest (s)", "mean (s)", "expected (s)")
    rows = [
        (one.cell.policy, one.workload, str(one.equal), str(len(one.different)), str(one.largest_difference_s),
         f"{one.found_mean_s:.2f}", f"{one.expected_mean_s:.2f}")
        for one in found
    ]  # fmt: skip
    click.echo(table(headers, rows, left=2))
    jobs = sum(one.equal + len(one.different) for one in found)
    click.echo(f"{sum(one.equal for one in found)} of {jobs} jobs equal")
    for one in found:
        for job in one.different[:_MOST_LISTED]:
            click.echo(f"  {one.cell.policy}, {one.workload}, {job.job}: {job.found_s} s, expected {job.expected_s} s")
        if len(one.different) > _MOST_LISTED:
            click.echo(f"  ... and {len(one.different) - _MOST_LISTED} more of {one.workload}")
