"""Profiles a cell: policy, agents, engine, tables."""

from __future__ import annotations

import cProfile
import inspect
import pstats
from pathlib import Path
from typing import TYPE_CHECKING

from simsched.cli.output import table
from simsched.stops import scratch_folder

if TYPE_CHECKING:
    from simsched.experiment import Grid

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
            run_cell(cell.task, scratch, {})
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
