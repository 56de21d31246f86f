"""Runs experiments from Python, and adds seeds until the comparisons are decided."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simsched.api.checking import ExperimentSource, plain, prepare
from simsched.api.progress import progress_listener
from simsched.api.results import RunResults, read_run
from simsched.documents import yaml_lines
from simsched.errors import InputError, Problem, input_error
from simsched.experiment import Grid, run_with_fairness
from simsched.experiment.running import Limits, RunResult
from simsched.results import RUN_FILE, read_run as read_tables
from simsched.results.compare import SeedDecision, decide, kept, looks, undecided
from simsched.words import counted


@dataclass(frozen=True)
class AddedSeeds:
    """The result of adding seeds: the decisions after `seeds` of at most `most`, with the planned looks."""

    seeds: int
    looks: Sequence[int]
    decisions: Sequence[SeedDecision]

    def lines(self) -> list[str]:
        """Describe the decisions, one line per comparison."""
        planned, of = ", ".join(map(str, self.looks)), len(self.decisions)
        said = [
            f"Seeds were added until decided: {self.seeds} of at most {self.looks[-1]} (looks at {planned}; "
            f"confidence of each interval 1 - 0.05 / ({of} x {len(self.looks)}), so that all hold at once)."
        ]
        for one in self.decisions:
            found = one.ratio
            if found is None or found.low is None or found.high is None:
                said.append(f"{one.row} / {one.reference}: no ratio, {one.verdict}")
            else:
                shown = f"{found.mean:.3f} ({found.low:.3f} to {found.high:.3f})"
                said.append(f"{one.row} / {one.reference}: {shown}, {one.verdict}")
        return said


def run_to_decision(
    grid: Grid,
    run: Callable[[Grid], RunResult],
    remade: Callable[[Sequence[int], str], Grid],
    say: Callable[[str], None],
) -> tuple[Grid, RunResult, AddedSeeds | None]:
    """Run a grid, and with `seeds: auto` more seeds of it, until all comparisons are decided or the budget is spent.

    `remade` creates the grid with other seeds, into the folder of the given name. A failed cell ends the procedure. The
    decisions are None if the experiment lists its seeds.
    """
    rule = grid.experiment.spec.sequential
    result = run(grid)
    if rule is None or not rule.added:
        return grid, result, None
    planned, decisions = looks(rule.most_seeds), list[SeedDecision]()
    for count in planned:
        if count != len(grid.experiment.spec.seeds):
            grid = remade(range(1, count + 1), grid.folder_name)
            result = run(grid)
        if result.failures or not (result.folder / RUN_FILE).is_file():
            return grid, result, None
        decisions = kept(decisions, decide(read_tables(result.folder), rule.metric, planned, rule.margin))
        left = undecided(decisions)
        decided = len(decisions) - len(left)
        say(f"{counted(count, 'seed')}: {decided} of {counted(len(decisions), 'comparison')} decided")
        if not left:
            break
    return grid, result, AddedSeeds(count, planned, decisions)


def run(
    experiment: ExperimentSource,
    changes: Mapping[str, Any] | None = None,
    *,
    out: str | Path = "results",
    name: str | None = None,
    workers: int = 1,
    policies: Sequence[str] = (),
    progress: bool = False,
    timeout_per_cell_s: float | None = None,
    in_process: bool = False,
) -> RunResults:
    """Run an experiment and return its results; cells that an earlier run finished are not run again.

    `experiment` is the name of a shipped experiment, the path of a YAML file, or a dict of the same form, in which a
    policy may be a name or a class from a file or module. `changes` maps dotted keys to values, as `-o` does on the
    command line. Results go to `out`/NAME, with a suffix for the changes unless `name` is given. `workers` is the
    number of processes, `policies` the labels to run, all by default; `progress` shows bars in a terminal or a
    notebook. A cell that runs for longer than `timeout_per_cell_s` is killed. Policies run in separate processes, which
    isolates their failures; with `in_process`, they run in this one, for a debugger.

    Raises `InputError` for invalid input, and if no cell finished; `RunResults.failed` names cells that failed while
    others finished.

    >>> import tempfile
    >>> results = run("tiresias/worked-example", {"seeds": 1}, out=tempfile.mkdtemp())
    >>> [round(value, 1) for value in results.table()["jct_mean_s"]]
    [9.3, 10.0, 9.3, 11.7]
    """
    limits = Limits(cell_s=timeout_per_cell_s)
    check_ways(in_process=in_process, workers=workers, limits=limits)
    texts = override_texts(changes or {})
    how: dict[str, Any] = {"labels": policies, "in_process": in_process, "limit_s": timeout_per_cell_s}
    grid = prepare(experiment, texts, name=name, ahead=not in_process, **how)
    with progress_listener() if progress else nullcontext() as listener:
        _, result, _ = run_to_decision(
            grid,
            lambda one: run_with_fairness(one, Path(out), workers, listener, limits=limits, in_process=in_process),
            lambda seeds, folder: prepare(experiment, texts, name=folder, seeds=seeds, **how),
            lambda _: None,
        )
    if not (result.folder / RUN_FILE).is_file() or (result.failures and not result.ran + result.reused):
        raise InputError(*(Problem(failure.name, failure.message) for failure in result.failures))
    return read_run(result.folder)


def check_ways(*, in_process: bool, workers: int, limits: Limits, dask: str | None = None) -> None:
    """Raise `InputError` for invalid limits, and for options that cells in this process do not support."""
    if limits.cell_s is not None and not limits.cell_s > 0:
        raise input_error(
            "timeout per cell", f"{limits.cell_s:g} s is not a valid time limit", "give more than 0 seconds"
        )
    asked = {
        "several workers": workers > 1,
        "dask": dask is not None,
        "a timeout per cell": limits.cell_s is not None,
        "memory per cell": limits.memory_mib is not None,
    }
    others = [name for name, wanted in asked.items() if wanted]
    if in_process and others:
        raise input_error("in process", f"cannot be combined with {' and '.join(others)}", "leave one of them out")
    if dask is not None and limits.cell_s is not None:
        message = "cells on dask cannot be killed from here, so there is no timeout per cell"
        raise input_error("--dask", message, "leave out --timeout-per-cell")


def override_texts(changes: Mapping[str, Any]) -> list[str]:
    """Format changes as on the command line: `workload.jobs=40`."""
    return [f"{key}={_text(plain(value))}" for key, value in changes.items()]


def _text(value: Any) -> str:
    if isinstance(value, str) and yaml_lines.parse_value(value, "") == value:
        return value
    return json.dumps(value)
