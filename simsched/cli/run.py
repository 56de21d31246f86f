"""`simsched run`, also with a profile of its time."""

from __future__ import annotations

import cProfile
import inspect
import pstats
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.operator_options import RunManifests, experiment_of
from simsched.cli.options import ABOVE_ZERO, COUNT, EXPERIMENT, JSON, NO_PLOTS, OVERRIDES, WORKERS, command, opt
from simsched.cli.output import debugging, print_json, processors, table
from simsched.stops import scratch_folder
from simsched.words import counted

if TYPE_CHECKING:
    from simsched.api import AddedSeeds
    from simsched.experiment import Grid
    from simsched.experiment.running import Failure, RunResult

_FAILED = 1
#: The formats of figures after a run; those for papers take twice as long.
_QUICK = ("png",)
#: The error of cutting above which to suggest a longer warm-up.
_LARGE_ERROR = 0.01


@command()
def run(
    experiment: str = EXPERIMENT,
    overrides: tuple[str, ...] = OVERRIDES,
    *,
    out: Path = opt("Folder for the results of all runs.", metavar="DIR", default=Path("results")),
    workers: int | None = WORKERS,
    dask: str | None = opt("Run the cells on this dask scheduler instead (see docs/results.md).", metavar="ADDRESS"),
    labels: tuple[str, ...] = opt("Run only this policy. Repeatable.", "--policy", metavar="LABEL"),
    diagnostics: tuple[str, ...] = opt("Record extra diagnostics, e.g. gap. Repeatable.", metavar="NAME"),
    explain: bool = opt("Record why each job waits, for `simsched why`: engine.reasons=true."),
    shards: int | None = opt("Cut the jobs of each cell into N parts.", type=COUNT),
    memory_per_cell: int | None = opt("Most memory that a cell may allocate.", metavar="MIB", type=COUNT),
    timeout_per_decision: float | None = opt(
        "Time limit of one decision of a policy. [default: no limit]", metavar="SECONDS", type=ABOVE_ZERO
    ),
    timeout_per_cell: float | None = opt(
        "Time after which the process of a cell is killed. [default: no limit]", metavar="SECONDS", type=ABOVE_ZERO
    ),
    isolated: bool = opt("Run policies that do not ship behind a wall: isolated=true."),
    in_process: bool = opt("Run policies in this process, for a debugger; one that ends the process ends the run."),
    name: str | None = opt("Folder of the run. [default: the experiment's name and the changes]", metavar="NAME"),
    profile: bool = opt("Print a time profile of the first cell on stderr; this cell runs twice."),
    dry_run: bool = opt("List the cells to run, and stop."),
    no_plots: bool = NO_PLOTS,
    manifests: RunManifests,
    as_json: bool = JSON,
) -> None:
    """Run an experiment and compare its policies.

    EXPERIMENT is a YAML file or the name of a shipped experiment (see `simsched list experiments`), or a file or folder
    of Kubernetes manifests, whose workloads run under Kueue, or under the policy that --policy names (see
    docs/how-to/kubernetes.md). Finished cells of earlier runs are reused. Results go to DIR/NAME, with a suffix for the
    changes. Prints tables on stdout and the paths of the figures.

    A seed (`seeds` in the file, or -o seeds=8) varies the jobs, unless they are a list or a replayed file: each seed
    has a separate stretch of a generated trace, or samples other jobs of a trace file. It also varies all randomness in
    policies, agents and failures. All policies get the same jobs for a seed.
    """
    from simsched.api import check_ways, grid_progress, prepare, progress_listener, run_to_decision
    from simsched.experiment import run_with_fairness
    from simsched.experiment.running import Limits

    experiment = experiment_of(experiment, out, labels, manifests)
    limits = Limits(memory_per_cell, timeout_per_decision, timeout_per_cell)
    check_ways(in_process=in_process, workers=workers or 1, limits=limits, dask=dask)
    overrides += (*_also(diagnostics, explain, shards), *["isolated=true"] * isolated)
    how: dict[str, Any] = {"labels": labels, "in_process": in_process, "limit_s": timeout_per_cell}
    ahead = not (in_process or dask or dry_run)
    grid = prepare(experiment, overrides, name=name, progress=grid_progress(), ahead=ahead, **how)
    if dry_run:
        _print_plan(grid, out, as_json)
        return
    if profile:
        click.echo(profiled(grid), err=True)
    again = partial(prepare, experiment, overrides, **how)
    one = partial(run_with_fairness, dask=dask, limits=limits, in_process=in_process)
    processes = 1 if in_process else workers or processors()
    with progress_listener() as listener:
        grid, result, added = run_to_decision(
            grid,
            lambda wanted: one(wanted, out, processes, listener),
            lambda seeds, folder: again(name=folder, seeds=seeds),
            lambda progress: click.echo(progress, err=True),
        )
    plots = grid.experiment.spec.report.plots and not no_plots
    _explain(result.failures, _report(grid, result, plots=plots, as_json=as_json, added=added))


def _also(diagnostics: Sequence[str], explain: bool, shards: int | None) -> tuple[str, ...]:
    """Return the changes of the experiment that options stand for."""
    recorded = [f"diagnostics=[{', '.join(diagnostics)}]"] if diagnostics else []
    return (*recorded, *["engine.reasons=true"] * explain, *([] if shards is None else [f"shards.parts={shards}"]))


def _print_plan(grid: Grid, out: Path, as_json: bool) -> None:
    from simsched.experiment.running import Store

    store = Store(out / grid.folder_name)
    cells = [(cell, store.has(cell.task.key)) for cell in grid.wanted]
    if as_json:
        rows = [
            {"cell": cell.task.key, "policy": cell.label, "seed": cell.seed, "point": dict(cell.point),
             "jobs": len(cell.task.jobs), "done": done}
            for cell, done in cells
        ]  # fmt: skip
        print_json({"experiment": grid.experiment.spec.name, "folder": str(store.folder), "cells": rows})
        return
    lines = [(cell.task.key, cell.name, f"{len(cell.task.jobs)}", "done" if done else "to run") for cell, done in cells]
    click.echo(table(("folder", "cell", "jobs", ""), lines, left=2))
    to_run = sum(not store.has(task.key) for task in grid.tasks)
    click.echo(
        f"{counted(len(cells), 'cell')}, {len(grid.tasks)} of them distinct, {to_run} to run, into {store.folder}"
    )


def _report(grid: Grid, result: RunResult, *, plots: bool, as_json: bool, added: AddedSeeds | None = None) -> str:
    """Print a run's tables and the paths of its figures; returns why figures failed, if they did."""
    from simsched.cli.compare import comparison_json, show_comparison
    from simsched.results import RUN_FILE, read_run

    if (result.failures and not result.ran + result.reused) or not (result.folder / RUN_FILE).is_file():
        return ""
    found = read_run(result.folder)
    reference = found.reference if found.reference in found.policies else None  # it may not exist yet
    paths: Sequence[Path] = []
    undrawn = ""
    if plots:
        from simsched.report.figures import draw_run

        try:
            paths = draw_run(found, result.folder / "figures", found.replicated_over, _QUICK)
        except OSError as error:  # e.g. a full disk; the results exist nonetheless
            remedy = f"the results are complete; redraw the figures with `simsched plot {result.folder}`"
            undrawn = f"{error.filename or result.folder}: {error.strerror or error}; {remedy}"
    if as_json:
        content = comparison_json(found, reference)
        counts = {"ran": result.ran, "reused": result.reused, "failed": [failure.name for failure in result.failures]}
        told = {} if added is None else {"seeds_added": asdict(added)}
        print_json({**content, "cells": counts, "figures": [str(path) for path in paths], **told})
        return undrawn
    show_comparison(found, reference)
    for line in () if added is None else ("", *added.lines()):
        click.echo(line)
    for cell in found.cells:
        if "shards" in cell.manifest:
            click.echo(_cut(f"{cell.policy}, seed {cell.seed}", cell.manifest["shards"]))
    click.echo(f"\nResults: {result.folder} ({counted(result.ran, 'cell')} run, {result.reused} reused)")
    pictures = [path for path in paths if path.suffix == ".png"]
    if pictures:
        click.echo(f"Figures (each with its data as CSV; `simsched plot {result.folder}` writes PDF too):")
        for path in pictures:
            click.echo(f"  {path}")
    return undrawn


def _cut(name: str, shards: Mapping[str, Any]) -> str:
    """Describe how a cell was cut, and the error that this may cause."""
    parts = counted(len(shards["cuts_s"]) + 1, "shard")
    if "error" not in shards:
        busy = (
            f"; {shards['busy_cuts']} more cuts were undone because the cluster was busy" if shards["busy_cuts"] else ""
        )
        return f"{name}: joined from {parts}, between which the cluster was empty: the tables are exact{busy}."
    error, warm_up_h = shards["error"], shards["warm_up_s"] / 3600
    changes = {
        what: error[name] / error[f"uncut_{name}"] - 1
        for what, name in (("JCT", "jct_mean_s"), ("queueing", "queueing_mean_s"))
        if error[f"uncut_{name}"]
    }
    told = ", ".join(f"mean {what} {change:+.2%}" for what, change in changes.items())
    more = max(map(abs, changes.values()), default=0) > _LARGE_ERROR
    return (
        f"{name}: joined from {parts} with a warm-up of {warm_up_h:.3g} h. The second, against the same "
        f"{error['jobs']} jobs uncut: {told}, {error['same_end']:.2%} of the jobs end at the same time, the others at "
        f"most {error['largest_difference_s']:g} s apart." + " Use a longer shards.warm_up_s." * more
    )


def _explain(failures: Sequence[Failure], undrawn: str) -> None:
    """Report failures on stderr; exit with 1 if there are any."""
    if undrawn:
        click.echo(f"simsched: {undrawn}", err=True)
    if not failures and not undrawn:
        return
    for failure in failures:
        click.echo(f"simsched: {failure.name}: {failure.message}", err=True)
        if debugging():
            click.echo(failure.traceback, err=True)
    click.get_current_context().exit(_FAILED)


#: Path fragments with their part of the work; the first match counts.
_PARTS = (
    ("/simsched/agent/", "agents"),
    ("/simsched/model/", "applications"),
    ("/simsched/applications/", "applications"),
    ("/simsched/engine/", "engine"),
    ("/simsched/results/", "tables"),
    ("/pyarrow/", "tables"),
    ("/pandas/", "tables"),
    ("/simsched/", "other parts of simsched"),
)
_SLOWEST = 5


def profiled(grid: Grid) -> str:
    """Profile the first cell in this process and return its shares of time, which the profiler distorts."""
    from simsched.experiment.running import run_cell

    cell = grid.wanted[0]
    name = cell.task.policy.name
    own = Path(inspect.getsourcefile(cell.task.policy.load()) or "").as_posix()
    watcher = cProfile.Profile()
    with scratch_folder() as scratch:
        watcher.enable()
        try:
            run_cell(cell.task, scratch)
        finally:
            watcher.disable()
    return f"Where the time of {cell.name} goes (with the profiler's own cost)\n{_shares(watcher, name, own)}"


def _shares(watcher: cProfile.Profile, policy: str, own: str) -> str:
    """Sum the time of each part, counting a library's for its main caller; `own` is the policy's file."""
    spent: dict[str, float] = {}
    slowest: list[tuple[float, str]] = []
    stats = pstats.Stats(watcher).stats  # type: ignore[attr-defined]
    for (file, line, name), (_, _, own_s, _, callers) in stats.items():
        part = _part(file, own) or _part_of_callers(callers, own) or "Python and libraries"
        spent[part] = spent.get(part, 0.0) + own_s
        if _part(file, own) in ("policy", "agents"):
            slowest.append((own_s, f"{Path(file).name}:{line} {name}"))
    total = sum(spent.values()) or 1.0
    rows = [(part, f"{100 * s / total:.0f}", f"{s:.2f}") for part, s in sorted(spent.items(), key=lambda one: -one[1])]
    text = table(("part", "%", "s"), rows)
    worst = [f"  {own_s:.2f} s  {where}" for own_s, where in sorted(slowest, reverse=True)[:_SLOWEST]]
    return "\n".join([text, f"Slowest functions of policy '{policy}' and agents:", *worst]) if worst else text


def _part(file: str, own: str) -> str:
    path = Path(file).as_posix()
    found = next((part for mark, part in _PARTS if mark in path), "")
    if "simsched_policies/" in path or "/simsched/policy/" in path or "/simsched/toolkit/programs/" in path:
        return "policy"
    return "policy" if not found and path == own else found


def _part_of_callers(callers: dict[tuple[str, int, str], tuple[int, int, float, float]], own: str) -> str:
    """Return the part that spends most time in a library's function."""
    known = [(times[2], _part(file, own)) for (file, _, _), times in callers.items() if _part(file, own)]
    return max(known)[1] if known else ""
