"""Runs and checks experiments from Python."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from simsched.api.adding_seeds import run_to_decision
from simsched.api.checking import ExperimentSource, plain, prepare
from simsched.api.progress import progress_listener
from simsched.api.results import RunResults, read_run
from simsched.documents import yaml_lines
from simsched.errors import InputError, Problem, input_error
from simsched.experiment import run_with_fairness
from simsched.experiment.running import Limits
from simsched.results import RUN_FILE


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
