"""Runs the cells whose jobs are cut: each shard runs as a separate cell, and their tables are joined.

Finished shards are kept until the cell is complete, so that a killed run repeats only those that were running.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from simsched.errors import InputError
from simsched.experiment.cuts import Cuts, Shard
from simsched.experiment.grid import GridCell
from simsched.experiment.running.cell import CellError, Filled, Outcome, outcome_of, table_writer, write_cell
from simsched.experiment.running.store import JOBS, OWN_FILES, SHARDS, Store, why_not_ours
from simsched.experiment.stored_jobs import StoredJobs
from simsched.experiment.task import Task, key_of
from simsched.model import JobSpec
from simsched.model.job import values_of
from simsched.results import read_json, read_table
from simsched.results.integrity import MANIFEST_FILE
from simsched.results.writer import Part, error_of_cutting, join_tables

#: Tables whose mean JCT has a larger relative error are not written.
MOST_ERROR = 0.1

#: Cells as they end.
Outcomes = Generator[tuple[GridCell, Outcome], None, None]
#: Runs cells into a folder.
Run = Callable[[Sequence[GridCell], Path], Outcomes]


def run_in_shards(missing: Sequence[GridCell], folder: Path, run: Run) -> Outcomes:
    """Run cells whose tasks have cuts in sequence, and the shards of each through `run`.

    At the end all shards go but those of the cells that failed: others are of a run that was cut elsewhere.
    """
    failed: set[str] = set()
    for cell in missing:
        beside = folder / SHARDS / cell.task.key
        outcome = outcome_of(lambda cell=cell, beside=beside: _run_cut(cell, folder, beside, run))  # type: ignore[misc]
        if outcome.error:
            failed.add(cell.task.key)
        else:
            shutil.rmtree(beside, ignore_errors=True)
        yield cell, outcome
    for left in (folder / SHARDS).glob("*"):
        with suppress(InputError):  # another run uses it
            if left.name not in failed and not why_not_ours(left):
                with Store(left).unused():
                    shutil.rmtree(left, ignore_errors=True)
    with suppress(OSError):  # it is not there, or some are left
        (folder / SHARDS).rmdir()


def _run_cut(cell: GridCell, folder: Path, beside: Path, run: Run) -> float:
    task, cuts = cell.task, cell.task.cuts
    assert cuts is not None
    store = Store(beside)
    with store.in_use():
        if cuts.warm_up_s:
            shards = cuts.shards
            *places, uncut = _done(cell, [*shards, cuts.uncut], store, run)
            parts: Iterable[Part] = (_part_of(task.jobs, *one) for one in zip(shards, places, strict=True))
            found = error_of_cutting(_part_of(task.jobs, shards[1], places[1]), Part(uncut))
            _refuse_if_wrong(found)
            told = {"warm_up_s": cuts.warm_up_s, "error": found}
        else:
            shards, places = _apart(cell, cuts, store, run)
            parts = [Part(place) for place in places]
            cuts, told = Cuts(shards), {"busy_cuts": len(cuts.shards) - len(shards)}
        about = {"cuts_s": [shard.from_s for shard in cuts.shards[1:]], **told}
        return write_cell(task, folder, lambda path: _joined(task, path, places, parts, about))


def _refuse_if_wrong(found: Mapping[str, float]) -> None:
    error = found["jct_mean_s"] / found["uncut_jct_mean_s"] - 1
    if abs(error) > MOST_ERROR:
        message = f"cutting changes the mean JCT of the second shard by {error:+.1%}, more than {MOST_ERROR:.0%}"
        raise CellError("shard", f"{message}; give a longer shards.warm_up_s, or leave the section out")


def _apart(cell: GridCell, cuts: Cuts, store: Store, run: Run) -> tuple[tuple[Shard, ...], list[Path]]:
    """Run shards separated by an empty cluster; merge neighbours if it turns out not to be empty."""
    shards = list(cuts.shards)
    while True:
        places = _done(cell, shards, store, run)
        busy = [
            number
            for number, place in enumerate(places[:-1])
            if read_table(place, "jobs", ["end_time_s"])["end_time_s"].max() >= math.floor(shards[number].until_s)
        ]
        if not busy:
            return tuple(shards), places
        for number in reversed(busy):
            shards[number : number + 2] = [shards[number].with_next(shards[number + 1])]


def _done(cell: GridCell, shards: Iterable[Shard], store: Store, run: Run) -> list[Path]:
    """Run the missing shards and return the folders of all."""
    cells = [_shard_of(cell, shard, store.folder) for shard in shards]
    missing = [one for one in cells if not store.has(one.task.key)]
    with closing(run(missing, store.folder)) as done:
        for one, outcome in done:
            if outcome.error:
                raise CellError("shard", f"{one.name}: {outcome.error}")
    return [store.cell(one.task.key) for one in cells]


def _shard_of(cell: GridCell, shard: Shard, folder: Path) -> GridCell:
    """Return a cell with the jobs that run in a shard."""
    path = folder / f"{shard.begins}-{shard.stops}{JOBS}"
    whole, ours = cell.task.jobs, (shard.begins, shard.stops)
    jobs = whole.part(path, *ours) if isinstance(whole, StoredJobs) else StoredJobs.write(path, whole[slice(*ours)])
    about = {**cell.task.about, "jobs": len(jobs), "jobs_hash": jobs.digest}
    task = replace(cell.task, jobs=jobs, cuts=None, about=about)
    point = {**cell.point, "jobs": f"{shard.first}-{shard.end - 1}"}
    return replace(cell, task=replace(task, key=key_of(task, {"jobs": jobs.digest})), point=point)


def _part_of(jobs: Sequence[JobSpec], shard: Shard, place: Path) -> Part:
    first, end = shard.first, shard.end
    if isinstance(jobs, StoredJobs):
        ids = jobs.values_of("id", first=first, end=end)
    else:
        ids = values_of(jobs[first:end], "id")
    return Part(place, list(ids), shard.from_s, shard.until_s)


def _joined(
    task: Task, folder: Path, places: Sequence[Path], parts: Iterable[Part], about: Mapping[str, Any]
) -> Filled:
    """Write the tables of a cell from those of its shards."""
    agents: dict[str, str] = {}
    cpu_s = 0.0
    for place in places:
        strange = sorted({path.name for path in place.iterdir()} - OWN_FILES)
        if strange:
            message = f"its policy writes '{strange[0]}', which cannot be joined; leave the section 'shards' out"
            raise CellError("shard", message)
        manifest = read_json(place / MANIFEST_FILE)
        agents |= manifest["agents"]
        cpu_s += manifest["timing"]["cpu_s"]
    with table_writer(task, folder) as writer:
        join_tables(parts, writer)
    return Filled(agents, writer.short, writer.contents, {"shards": {**about, "cpu_s": round(cpu_s, 3)}})
