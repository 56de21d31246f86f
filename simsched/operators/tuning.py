"""Tunes rows of a league before it is played, on seeds that it does not use."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simsched.experiment import Contest, LeagueSpec
from simsched.experiment.running import Listener, prepare_grid, run_grid
from simsched.results import RUN_FILE, read_run

#: The folder of tuning runs, below that of the league.
_FOLDER = "tuning"
#: The logarithms of the mean JCTs of the seeds, by candidate and contest.
_Logs = dict[str, dict[str, list[float]]]


@dataclass(frozen=True)
class Tuned:
    """A row with its best parameters, None if no candidate ran, and a sentence on how they were found."""

    row: Mapping[str, Any] | None
    said: str


def tune(
    spec: LeagueSpec, contests: Sequence[Contest], out: Path, workers: int, listener: Listener | None
) -> dict[str, Tuned]:
    """Tune the rows of a league's `tuning`, by label; candidates that cannot run anywhere are left out."""
    if spec.tuning is None:
        return {}
    usual = next(iter(spec.conditions))
    found = {row.label: row.candidates() for row in spec.tuning.rows}
    logs: _Logs = {}
    for contest in contests:
        if contest.condition != usual or contest.missing:
            continue
        document = contest.document([one for rows in found.values() for one in rows], spec.tuning.seeds, spec.name)
        grid = prepare_grid(document, name=contest.name, leave_out=True)
        if grid.cells:
            result = run_grid(grid, out / _FOLDER, workers, listener)
            _gather(logs, contest.name, result.folder, len(spec.tuning.seeds))
    return {label: _tuned(label, rows, logs, spec.tuning.seeds) for label, rows in found.items()}


def _gather(logs: _Logs, contest: str, folder: Path, seeds: int) -> None:
    if not (folder / RUN_FILE).is_file():
        return
    by_label: dict[str, list[float]] = {}
    for cell in read_run(folder).cells:
        by_label.setdefault(cell.policy, []).append(math.log(cell.summary["jct_mean_s"]))
    for label, values in by_label.items():
        if len(values) == seeds:
            logs.setdefault(label, {})[contest] = values


def _tuned(label: str, rows: Sequence[Mapping[str, Any]], logs: _Logs, seeds: Sequence[int]) -> Tuned:
    """Take the best candidate at the contests that all of them ran."""
    able = [row for row in rows if row["label"] in logs]
    ran = [logs[row["label"]] for row in able]
    shared = [name for name in ran[0] if all(name in one for one in ran)] if ran else []
    if not shared:
        return Tuned(None, f"{label}: left out, as its candidates ran in no contest.")
    means = [_mean(value for name in shared for value in one[name]) for one in ran]
    best = able[means.index(min(means))]
    given = ", ".join(f"{name}={json.dumps(value)}" for name, value in best["params"].items())
    unable = f" ({len(rows) - len(able)} more cannot run)" if len(able) < len(rows) else ""
    said = (
        f"{label}: {given}, the best of {len(able)}{unable} by the geometric mean of mean JCTs at {', '.join(shared)} "
        f"on seeds {', '.join(map(str, seeds))}, not the league's; the worst took "
        f"{math.exp(max(means) - min(means)):.2f} times as long."
    )
    return Tuned({**best, "label": label}, said)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)
