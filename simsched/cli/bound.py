"""`simsched bound`: bounds on the best that any scheduler can do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.experiment import overrides_option
from simsched.cli.output import json_option, print_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simsched.operators import Bound, Distance

_REFUTED = 1
#: Tolerance for rounding in printed and summed seconds.
_ROUNDING = 1e-9


@click.command()
@click.argument("what", metavar="EXPERIMENT_OR_RUN")
@overrides_option
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE", help="Write bounds and certificates as JSON.")
@click.option("--check", is_flag=True, help="Check the certificates in a file written by --out; exit code 1 if one"
              " does not prove its bounds.")  # fmt: skip
@json_option
def bound(what: str, overrides: tuple[str, ...], out: Path | None, check: bool, as_json: bool) -> None:
    """Show lower bounds on mean JCT, makespan and mean wait for any scheduler, with a proof.

    The bounds hold for every schedule, including clairvoyant ones that move jobs at no cost. For the folder of a run,
    the command compares them with its results and shows how far each policy is at most above the best possible.
    """
    if check:
        _check(Path(what), as_json=as_json)
        return
    from simsched.api import grid_progress, prepare
    from simsched.errors import input_error
    from simsched.operators import bounds_of, distances, grid_of
    from simsched.results import RUN_FILE, json_text, read_run

    run = read_run(Path(what)) if (Path(what) / RUN_FILE).is_file() else None
    if run is not None and overrides:
        raise input_error("-o", "changes an experiment, but this is a run", "leave it out")
    grid = prepare(what, overrides, progress=grid_progress()) if run is None else grid_of(run)
    bounds = bounds_of(grid)
    beside = distances(run, bounds) if run is not None else []
    content: dict[str, Any] = {"experiment": grid.experiment.spec.name, "bounds": [asdict(one) for one in bounds]}
    if out is not None:
        from simsched.files import write_text

        write_text(out, json_text(content))
    if as_json:
        for one in content["bounds"]:
            one.pop("certificate")
        print_json(content | ({"distances": [_plain(one) for one in beside]} if beside else {}))
        return
    _print(grid.experiment.spec.name, bounds, beside)
    if out is not None:
        click.echo(f"{out}")


def _check(file: Path, *, as_json: bool) -> None:
    from simsched.errors import input_error
    from simsched.reading import read_json

    content = read_json(file)
    listed = content.get("bounds") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise input_error(file, "is not a file of bounds", "name one that `simsched bound EXPERIMENT --out FILE` wrote")
    said = [_problem(one) for one in listed]
    if as_json:
        print_json({"bounds": len(said), "problems": [one for one in said if one]})
    else:
        for one in filter(None, said):
            click.echo(one)
        click.echo(f"{len(said)} bounds, {sum(map(bool, said))} of them not proved")
    if any(said):
        click.get_current_context().exit(_REFUTED)


def _problem(one: Mapping[str, Any]) -> str:
    """Return the problem with a bound of a file, "" if its certificate proves it."""
    from simsched.bounds import problem_of

    name = f"{one.get('workload')}, seed {one.get('seed')}"
    if one.get("refused"):
        return ""
    claim, unit_s = one.get("certificate"), one.get("unit_s", 1.0)
    if not isinstance(claim, dict):
        return f"{name}: it has no certificate"
    problem = problem_of(claim)
    if problem:
        return f"{name}: {problem}"
    least = one["jobs"] * one["mean_jct_s"], one["makespan_s"]
    proved = claim["flow_sum"] * unit_s, claim["makespan"] * unit_s
    within = all(said <= known * (1 + _ROUNDING) for said, known in zip(least, proved, strict=True))
    return "" if within else f"{name}: it says more than its certificate"


def _plain(one: Distance) -> Mapping[str, Any]:
    plain = asdict(one)
    bound = plain.pop("bound")
    return {**plain, "point": bound["point"], "seed": bound["seed"], "workload": bound["workload"]}


def _print(name: str, bounds: Sequence[Bound], beside: Sequence[Distance]) -> None:
    from simsched.cli.output import print_table
    from simsched.report import TextTable, shown_unit

    said = dict.fromkeys(f"Left out: {words}." for one in bounds for words in one.relaxed)
    said |= dict.fromkeys(f"No bound for {_place(one)}: {one.refused}." for one in bounds if one.refused)
    known = [one for one in bounds if not one.refused]
    unit = shown_unit("s", (one.makespan_s for one in known))

    def time(seconds: float | None) -> str:
        return "-" if seconds is None else f"{seconds * unit.factor:.2f}"

    rows = tuple(
        (_place(one), f"{one.jobs}", time(one.mean_jct_s), time(one.mean_wait_s), time(one.makespan_s)) for one in known
    )
    headers = ("cells", "jobs", *map(unit.title, ("mean JCT", "mean wait", "makespan")))
    notes = ("No scheduler can do better than these.", *said)
    print_table(TextTable(f"{name}: lower bounds", headers, rows, notes, 1))
    if not beside:
        return
    click.echo()
    lines = tuple(
        (
            one.policy,
            _place(one.bound),
            time(one.mean_jct_s),
            *map(_percent, (one.jct, one.wait, one.makespan, one.way)),
        )
        for one in beside
    )
    unknown = dict.fromkeys(f"{one.policy}, {_place(one.bound)}: {one.unknown}." for one in beside if one.unknown)
    columns = ("policy", "cell", unit.title("mean JCT"), "above the best possible, at most (%)", "of mean wait (%)",
               "of makespan (%)", "way from FIFO to the bound (%)")  # fmt: skip
    print_table(TextTable(f"{name}: largest gap to the best possible", columns, lines, tuple(unknown), 2))


def _place(one: Bound) -> str:
    point = (f"{key.rsplit('.', 1)[-1]}={value}" for key, value in one.point.items())
    return ", ".join([one.workload, f"seed {one.seed}", *point])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
