"""Tunes rows of a league, before it is played, on seeds that it does not have."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from simsched.experiment import Contest, LeagueSpec
from simsched.experiment.running import Listener, prepare_grid, run_grid
from simsched.results import RUN_FILE, read_run

#: The folder, below that of the league, of the runs by which rows are tuned.
_FOLDER = "tuning"
#: By candidate and contest, the logarithms of the mean JCTs of the seeds.
_Logs = dict[str, dict[str, list[float]]]


def tune(
    spec: LeagueSpec, contests: Sequence[Contest], out: Path, workers: int, listener: Listener | None
) -> dict[str, tuple[Mapping[str, Any], str]]:
    """Return by label the rows of a league's `tuning` with the best of their parameters, and how these were found.

    A row whose candidates have no contest that all of them ran is left out.
    """
    if spec.tuning is None:
        return {}
    usual = next(iter(spec.conditions))
    found = {row.label: row.candidates() for row in spec.tuning.rows}
    seeds = tuple(spec.tuning.seeds)
    logs: _Logs = {}
    for contest in contests:
        if contest.condition != usual or contest.missing:
            continue
        document = contest.document([one for rows in found.values() for one in rows], seeds, spec.name)
        grid = prepare_grid(document, name=contest.name, leave_out=True)
        if grid.cells:
            result = run_grid(grid, out / _FOLDER, workers, listener)
            _gather(logs, contest.name, result.folder, len(seeds))
    chosen = {label: _best(rows, logs) for label, rows in found.items()}
    return {
        label: ({**best[0], "label": label}, _said(label, len(found[label]), *best, seeds))
        for label, best in chosen.items()
        if best is not None
    }


def _gather(logs: _Logs, contest: str, folder: Path, seeds: int) -> None:
    if not (folder / RUN_FILE).is_file():
        return
    by_label: dict[str, list[float]] = {}
    for cell in read_run(folder).cells:
        by_label.setdefault(cell.policy, []).append(math.log(cell.summary["jct_mean_s"]))
    for label, values in by_label.items():
        if len(values) == seeds:
            logs.setdefault(label, {})[contest] = values


def _best(rows: Sequence[Mapping[str, Any]], logs: _Logs) -> tuple[Mapping[str, Any], float, Sequence[str]] | None:
    """Return the best candidate, how many times as long the worst one's mean JCT is, and the contests that tell."""
    by_row = [logs.get(row["label"], {}) for row in rows]
    shared = [name for name in by_row[0] if all(name in one for one in by_row)]
    if not shared:
        return None
    means = [_mean(value for name in shared for value in one[name]) for one in by_row]
    return rows[means.index(min(means))], math.exp(max(means) - min(means)), shared


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return math.fsum(found) / len(found)


def _said(
    label: str,
    candidates: int,
    best: Mapping[str, Any],
    spread: float,
    contests: Sequence[str],
    seeds: Sequence[int],
) -> str:
    given = ", ".join(f"{name}={json.dumps(value)}" for name, value in best["params"].items())
    return (
        f"{label}: {given}, the best of {candidates} by the geometric mean of mean JCTs at {', '.join(contests)} on "
        f"seeds {', '.join(map(str, seeds))}, not the league's; the worst took {spread:.2f} times as long."
    )
