"""The run's index, and the manifest's description of the environment."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from simsched.experiment.grid import Grid, GridCell
from simsched.experiment.results_name import had_to_be_given
from simsched.experiment.validation import Experiment
from simsched.results.sheets import read_curves
from simsched.version import __version__

_PACKAGES = ("numpy", "scipy", "numba", "pandas", "pyarrow")


def describe_environment() -> dict[str, Any]:
    """Describe the environment: versions, platform, and the git commit of a checkout."""
    return {
        "simsched": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "git_commit": _git_commit(Path(__file__).resolve().parents[2]),
    }


@cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _git_commit(checkout: Path) -> str:
    """Return the commit, with `+` if files differ from it; empty without checkout or commits."""
    if not (checkout / ".git").exists():
        return ""
    commit = _git(checkout, "rev-parse", "HEAD")
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no") if commit else ""
    return f"{commit}+" if changed else commit


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def run_index(grid: Grid, cells: Sequence[GridCell], failed: Mapping[str, str]) -> dict[str, Any]:
    """Describe a run: its cells in order, failed ones with reasons (by key), and the experiment."""
    spec = grid.experiment.spec
    curves = read_curves(Path(spec.report.curves)) if spec.report.curves else ()
    complete = {cell.task.key for cell in cells}
    entries = [
        {
            "cell": cell.task.key,
            "folder": f"cells/{cell.task.key}",
            "policy": cell.label,
            "policy_name": cell.policy,
            "seed": cell.seed,
            "point": dict(cell.point),
            "own": dict(cell.own),
        }
        for cell in cells
    ]
    return {
        "name": spec.name,
        "cells": entries,
        "missing": [cell.name for cell in grid.cells if cell.task.key not in complete],
        "failed": {cell.name: failed[cell.task.key] for cell in grid.cells if cell.task.key in failed},
        "changed": _changed(grid.experiment),
        "published": spec.published,
        "published_source": spec.published_source,
        "published_curves": [list(point) for point in curves],
        "fairness": {},
        "experiment": spec.model_dump(mode="json"),
    }


def _changed(experiment: Experiment) -> list[str]:
    """List the user's changes, except locations of data that the file leaves open."""
    keys = [(change, change.partition("=")[0].strip()) for change in experiment.changed]
    return [change for change, key in keys if not had_to_be_given(experiment.file, key)]
