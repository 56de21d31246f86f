"""Finds users' experiment files and shipped experiments."""

from __future__ import annotations

from pathlib import Path

from simsched.errors import input_error, nearest
from simsched.paths import data_folder


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
