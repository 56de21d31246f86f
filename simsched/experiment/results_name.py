"""Finds experiments by name, and names the folder of a run, keeping runs with other settings apart."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simsched.documents import yaml_lines
from simsched.errors import input_error, nearest
from simsched.paths import data_folder

if TYPE_CHECKING:
    from simsched.experiment.validation import Experiment

#: Keys that do not affect results.
_SAID_ONLY = ("name", "description", "report", "published", "published_source", "finish_time_fairness")
_MOST_LETTERS = 60
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._=,+-]*$")


def results_name(experiment: Experiment, name: str | None = None) -> str:
    """Return the folder's name: the experiment's, then the changes, as in `quickstart--jobs=80`.

    A user's `name` is taken as is; raises `InputError` if it is not a folder name.
    """
    if name is not None:
        if not _NAME.match(name):
            raise input_error("--name", f"'{name}' cannot name a folder", "use letters, digits and . _ - = , +")
        return name
    own = experiment.spec.name
    changes = [change.partition("=") for change in experiment.changed]
    said = [(key.strip(), value) for key, _, value in changes if key.split(".")[0].strip() not in _SAID_ONLY]
    said = [(key, value) for key, value in said if not had_to_be_given(experiment.file, key)]
    named = any(key.strip() == "name" for key, _, _ in changes)  # the user named this run
    if not said or named:
        return own
    parts = [(f"{_short(key)}={shown}", whole) for key, value in sorted(said) for shown, whole in [_shown(value)]]
    text = "--".join(part for part, _ in parts)
    if len(text) > _MOST_LETTERS or not all(whole for _, whole in parts):
        digest = hashlib.sha256("\n".join(f"{key}={value}" for key, value in sorted(said)).encode()).hexdigest()
        text = f"{text[:_MOST_LETTERS].rstrip('-=,.')}--{digest[:6]}"
    return f"{own}--{text}"


def had_to_be_given(file: Path, key: str) -> bool:
    """Return whether a key names data the file leaves to the user: its path does not exist."""
    *sections, name = key.split(".")
    if not name.endswith("path") or not file.is_file():
        return False
    given: Any = yaml_lines.load(file).data
    for section in sections:
        given = given.get(section) if isinstance(given, dict) else None
    place = given.get(name) if isinstance(given, dict) else None
    return isinstance(place, str) and not (file.parent / place).exists()


def _short(key: str) -> str:
    parts = key.split(".")
    return parts[-1] if parts[0] != "policies" or len(parts) < 3 else f"{_plain(parts[1])}.{parts[-1]}"


def _shown(value: str) -> tuple[str, bool]:
    """Return a value's short form, the last part of a path, and whether it is complete."""
    text = value.strip()
    last = Path(text).stem if "/" in text and "[" not in text else text
    return _plain(last), last == text


def _plain(value: str) -> str:
    return re.sub(r"[^A-Za-z0-9._]+", ",", value.strip()).strip(",") or "none"


def find_experiment(name: str) -> Path:
    """Find an experiment by path, or a shipped one by name, with or without `.yaml`.

    The folder of a shipped experiment is optional if the name is unique. Raises `InputError` if there is no match, or
    several.
    """
    path = Path(name)
    if path.is_file():
        return path
    shipped = shipped_experiments()
    key = name.removesuffix(".yaml")
    same = [key] if key in shipped else [known for known in shipped if known.rpartition("/")[2] == key]
    if len(same) == 1:
        return shipped[same[0]]
    if same:
        raise input_error(name, "several shipped experiments have that name", f"use one of {', '.join(same)}")
    if path.is_dir():
        raise input_error(name, "is a folder, not an experiment file")
    namesakes = [known for known in shipped if known.rpartition("/")[2] == path.stem]
    remedy = f"did you mean '{namesakes[0]}'?" if namesakes else nearest(key, shipped)
    remedy = remedy if remedy.startswith("did") else "see `simsched list experiments`"
    raise input_error(name, "there is no such file, and no shipped experiment of that name", remedy)


def shipped_experiments() -> dict[str, Path]:
    """List the shipped experiments by name."""
    folder = data_folder("experiments")
    files = sorted(folder.rglob("*.yaml"))
    return {file.relative_to(folder).with_suffix("").as_posix(): file for file in files}
