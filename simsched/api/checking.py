"""Reads and checks experiments without running them: shipped ones by name, files, or plain dicts."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simsched.documents import Document, yaml_lines
from simsched.errors import input_error
from simsched.experiment import Grid, GridCell, check_experiment, find_experiment, look_into
from simsched.experiment.running import Progress, apart_if_foreign, prepare_grid

#: An experiment: the name of a shipped one, a YAML file, or the content of one.
ExperimentSource = str | Path | Mapping[str, Any]


def prepare(experiment: ExperimentSource, overrides: Sequence[str] = (), **how: Any) -> Grid:
    """Read and check an experiment with `key=value` overrides and create its cells; options as for `prepare_grid`."""
    return prepare_grid(_document(experiment), overrides, **how)


@dataclass(frozen=True)
class Checked:
    """The result of checking an experiment: its name, its number of cells, and the checked cells."""

    name: str
    total: int
    cells: tuple[GridCell, ...]


def check(experiment: ExperimentSource, overrides: Sequence[str] = (), progress: Progress | None = None) -> Checked:
    """Check an experiment with `key=value` overrides as `simsched validate` does; third-party code as in `prepare`.

    Raises `InputError` with every problem.
    """
    document = _document(experiment)
    return apart_if_foreign(_checked, document, overrides, progress=progress) or _checked(document, overrides, progress)


def _checked(document: Document, overrides: Sequence[str], progress: Progress | None) -> Checked:
    found = check_experiment(document, overrides)
    return Checked(found.spec.name, *look_into(found, progress))


def _document(experiment: ExperimentSource) -> Document:
    if isinstance(experiment, Mapping):
        return yaml_lines.parse(json.dumps(plain(experiment)), "experiment")
    return yaml_lines.load(find_experiment(str(experiment)))


def plain(value: Any) -> Any:
    """Convert policy classes to their entries, and everything else to JSON values."""
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
    """Return a name by which another process finds a policy class."""
    label = str(getattr(policy, "name", policy.__name__))
    if policy.__module__ != "__main__" and not policy.__module__.startswith("simsched_file_"):
        return {"name": f"{policy.__module__}:{policy.__qualname__}", "label": label}
    try:
        file = inspect.getsourcefile(policy)
    except (TypeError, OSError):
        file = None
    if file is None or not Path(file).is_file():
        message = "the class is not in a file, so the processes that run cells cannot find it"
        raise input_error(f"policy '{label}'", message, "save it in a file, or use simulate()")
    return {"name": f"{Path(file).resolve()}:{policy.__qualname__}", "label": label}
