"""Reads and checks experiments: shipped ones by name, files, or plain dicts; nothing is run."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import current_process
from pathlib import Path
from typing import Any

from simsched.documents import Document, yaml_lines
from simsched.errors import input_error
from simsched.experiment import (
    Grid,
    GridCell,
    check_experiment,
    find_experiment,
    foreign_code,
    look_into,
    make_grid,
    results_name,
)

#: An experiment: the name of a shipped one, a YAML file, or what such a file would say.
ExperimentSource = str | Path | Mapping[str, Any]


#: Is told how many cells have been made, and of how many.
Progress = Callable[[int, int], None]


def prepare(
    experiment: ExperimentSource,
    overrides: Sequence[str] = (),
    *,
    labels: Sequence[str] = (),
    name: str | None = None,
    progress: Progress | None = None,
    in_process: bool = False,
    ahead: bool = False,
    limit_s: float | None = None,
) -> Grid:
    """Read and check an experiment with `key=value` overrides, and make its cells; nothing is run.

    `ahead` starts to load the process that workers are forked from. Third-party policies are loaded and made in a
    process of their own, or `in_process`; there each piece of their code may take `limit_s`. Raises `InputError` with
    everything that is wrong.
    """
    document = _document(experiment)
    rest = (tuple(labels), name)
    if not in_process:
        found: Grid | None = _apart(_kept_grid, document, overrides, *rest, progress=progress, limit_s=limit_s)
        if found is not None:
            return found
    return _grid(document, overrides, *rest, progress, ahead=ahead)


def _apart(
    work: Callable[..., Any],
    document: Document,
    overrides: Sequence[str],
    *rest: object,
    progress: Progress | None,
    limit_s: float | None = None,
) -> Any:
    """Process a document that loads third-party code in another process; None if it is done here."""
    foreign = foreign_code(document, overrides)
    if not foreign or current_process().daemon:  # which may have no processes of its own
        return None
    from simsched.experiment.running import done_apart  # loads what runs cells

    whose = ", ".join(f"'{one}'" for one in foreign)
    return done_apart(work, document, tuple(overrides), *rest, whose=whose, progress=progress, limit_s=limit_s)


def _kept_grid(*arguments: Any) -> Grid | None:
    """Make a grid without the classes of its policies; None where its cells are made whenever they are asked for."""
    grid = _grid(*arguments)
    if not isinstance(grid.cells, tuple) or not isinstance(grid.experiment.points, tuple):
        return None
    return replace(grid, experiment=replace(grid.experiment, policies={}))


def _grid(
    document: Document,
    overrides: Sequence[str],
    labels: Sequence[str],
    name: str | None,
    progress: Progress | None,
    *,
    ahead: bool = False,
) -> Grid:
    checked = check_experiment(document, overrides)
    if ahead:
        from simsched.experiment.running import begin_loading  # loads what runs cells

        begin_loading()
    grid = make_grid(checked, progress).select(labels)
    return replace(grid, results_name=results_name(checked, name))


@dataclass(frozen=True)
class Checked:
    """The result of checking an experiment: its name, how many cells it has, and those checked."""

    name: str
    total: int
    cells: tuple[GridCell, ...]


def check(experiment: ExperimentSource, overrides: Sequence[str] = (), progress: Progress | None = None) -> Checked:
    """Check an experiment with `key=value` overrides as `simsched validate` does; third-party code as in `prepare`.

    Raises `InputError` with everything that is wrong.
    """
    document = _document(experiment)
    return _apart(_checked, document, overrides, progress=progress) or _checked(document, overrides, progress)


def _checked(document: Document, overrides: Sequence[str], progress: Progress | None) -> Checked:
    found = check_experiment(document, overrides)
    return Checked(found.spec.name, *look_into(found, progress))


def _document(experiment: ExperimentSource) -> Document:
    if isinstance(experiment, Mapping):
        told = plain(experiment)
        if isinstance(told.get("policies"), list):
            told["policies"] = [{"name": one} if isinstance(one, str) else one for one in told["policies"]]
        return yaml_lines.parse(json.dumps(told), "experiment")
    return yaml_lines.load(find_experiment(str(experiment)))


def plain(value: Any) -> Any:
    """Turn policy classes into their entries, and everything else into JSON values."""
    if isinstance(value, type):
        return _entry(value)
    if isinstance(value, Mapping):
        told = {str(key): plain(item) for key, item in value.items()}
        named = told.get("name")
        own = {"label": told["label"]} if "label" in told else {}
        return {**told, **named, **own} if isinstance(named, dict) else told
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value.item() if hasattr(value, "item") else value


def _entry(policy: type) -> dict[str, str]:
    """Name a policy class for another process to find."""
    label = str(getattr(policy, "name", policy.__name__))
    if policy.__module__ != "__main__" and not policy.__module__.startswith("simsched_file_"):
        return {"name": f"{policy.__module__}:{policy.__qualname__}", "label": label}
    try:
        file = inspect.getsourcefile(policy)
    except (TypeError, OSError):
        file = None
    if file is None or not Path(file).is_file():
        message = "the class is in no file, so processes that run the cells cannot find it"
        raise input_error(f"policy '{label}'", message, "save it in a file, or use simulate()")
    return {"name": f"{Path(file).resolve()}:{policy.__qualname__}", "label": label}
