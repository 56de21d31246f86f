"""`simsched bound`: bounds on the best that any scheduler can do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.options import JSON, OVERRIDES, arg, command, opt
from simsched.cli.output import print_json, print_table
from simsched.errors import input_error
from simsched.files import write_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from simsched.experiment import Grid
    from simsched.operators import Bound, Distance
    from simsched.results import Run

_REFUTED = 1
_COST_NOTE = (
    "GPU cost: of jobs that meet their deadlines and change what they hold at steps of the market's series only; "
    "starts cost the restart, transfers nothing."
)


@command()
def bound(
    what: str = arg("EXPERIMENT_OR_RUN"),
    overrides: tuple[str, ...] = OVERRIDES,
    *,
    out: Path | None = opt("Write bounds and certificates as JSON."),
    check: bool = opt(
        "Check a file written by --out against the cells that it names; exit code 1 if a certificate does not "
        "prove its bounds."
    ),
    of: str | None = opt(
        "--check: compare with these cells. [default: named in the file]", metavar="EXPERIMENT_OR_RUN"
    ),
    as_json: bool = JSON,
) -> None:
    """Show lower bounds on mean JCT, makespan, mean wait and spot cost for any scheduler, with a proof.

    The bounds hold for every schedule, including clairvoyant ones that move jobs at no cost. For the folder of a run,
    the command compares them with its results and shows how far each policy is at most above the best possible.
    """
    if check:
        _check(Path(what), of, overrides, as_json=as_json)
        return
    from simsched.operators import bounds_of, distances
    from simsched.results.writer import json_text

    grid, run = _grid(what, overrides)
    bounds = bounds_of(grid)
    beside = distances(run, bounds) if run is not None else []
    place = str(Path(what).resolve()) if Path(what).exists() else what
    content: dict[str, Any] = {"experiment": grid.experiment.spec.name, "of": place, "overrides": list(overrides)}
    content["bounds"] = [asdict(one) for one in bounds]
    if out is not None:
        write_text(out, json_text(content))
    if as_json:
        for one in content["bounds"]:
            one.pop("certificate")
        print_json(content | ({"distances": [_plain(one) for one in beside]} if beside else {}))
        return
    _print(grid.experiment.spec.name, bounds, beside)
    if out is not None:
        click.echo(f"{out}")


def _check(file: Path, of: str | None, overrides: tuple[str, ...], *, as_json: bool) -> None:
    from simsched.operators.bound import problems_of
    from simsched.reading import read_json

    content = read_json(file)
    listed = content.get("bounds") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise input_error(file, "is not a file of bounds", "name one that `simsched bound EXPERIMENT --out FILE` wrote")
    what = of or content.get("of")
    if not isinstance(what, str):
        raise input_error(file, "does not say of what its bounds are", "name the experiment or run with --of")
    grid, _ = _grid(what, overrides if of else tuple(map(str, content.get("overrides", ()))))
    problems = problems_of(listed, grid)
    said = [f"{one.get('workload')}, seed {one.get('seed')}: {text}" for one, text in zip(listed, problems, strict=True)
            if text]  # fmt: skip
    refused = sum(bool(one.get("refused")) for one in listed)
    if as_json:
        print_json({"of": what, "bounds": len(listed), "refused": refused, "problems": said})
    else:
        for one in said:
            click.echo(one)
        counted = f"{len(listed)} bounds, {len(said)} of them not proved, {refused} refused"
        click.echo(f"{counted}; compared with the cells of {what}")
    if said:
        click.get_current_context().exit(_REFUTED)


def _grid(what: str, overrides: tuple[str, ...]) -> tuple[Grid, Run | None]:
    """Return the cells of an experiment, or of a run."""
    from simsched.api import grid_progress, prepare
    from simsched.operators import grid_of
    from simsched.results import RUN_FILE, read_run

    if not (Path(what) / RUN_FILE).is_file():
        return prepare(what, overrides, progress=grid_progress()), None
    if overrides:
        raise input_error("-o", "changes an experiment, but this is a run", "leave it out")
    run = read_run(Path(what))
    return grid_of(run), run


def _plain(one: Distance) -> Mapping[str, Any]:
    plain = asdict(one)
    bound = plain.pop("bound")
    return {**plain, "point": bound["point"], "seed": bound["seed"], "workload": bound["workload"]}


def _print(name: str, bounds: Sequence[Bound], beside: Sequence[Distance]) -> None:
    from simsched.report import TextTable, shown_unit

    said = dict.fromkeys(f"Left out: {words}." for one in bounds for words in one.relaxed)
    said |= dict.fromkeys(f"No bound for {_place(one)}: {one.refused}." for one in bounds if one.refused)
    known = [one for one in bounds if not one.refused]
    priced, loose = any(one.gpu_cost is not None for one in known), any(one.loose for one in known)
    unit = shown_unit("s", (one.makespan_s for one in known))

    def time(seconds: float | None) -> str:
        return "-" if seconds is None else f"{seconds * unit.factor:.2f}"

    rows = tuple(
        (_place(one), f"{one.jobs}", time(one.mean_jct_s), time(one.mean_wait_s), time(one.makespan_s))
        + (("-" if one.gpu_cost is None else f"{one.gpu_cost:.2f}",) if priced else ())
        + (("loose: physics relaxed" if one.loose else "of the same physics",) if loose else ())
        for one in known
    )
    headers = ("cells", "jobs", *map(unit.title, ("mean JCT", "mean wait", "makespan")), *["GPU cost ($)"] * priced,
               *["bounds are"] * loose)  # fmt: skip
    notes = ("No scheduler can do better than these.", *said, *[_COST_NOTE] * priced)
    print_table(TextTable(f"{name}: lower bounds", headers, rows, notes, 1))
    if not beside:
        return
    click.echo()
    lines = tuple(
        (
            one.policy,
            _place(one.bound),
            time(one.mean_jct_s),
            *map(_percent, (one.jct, one.wait, one.makespan, *[one.gpu_cost] * priced, one.way)),
        )
        for one in beside
    )
    unknown = dict.fromkeys(f"{one.policy}, {_place(one.bound)}: {one.unknown}." for one in beside if one.unknown)
    columns = ("policy", "cell", unit.title("mean JCT"), "above the best possible, at most (%)", "of mean wait (%)",
               "of makespan (%)", *["of GPU cost (%)"] * priced, "way from FIFO to the bound (%)")  # fmt: skip
    print_table(TextTable(f"{name}: largest gap to the best possible", columns, lines, tuple(unknown), 2))


def _place(one: Bound) -> str:
    point = (f"{key.rsplit('.', 1)[-1]}={value}" for key, value in one.point.items())
    return ", ".join([one.workload, f"seed {one.seed}", *point])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"
