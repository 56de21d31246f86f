"""The index of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simsched.experiment.grid import Grid, GridCell
from simsched.experiment.results_name import had_to_be_given
from simsched.experiment.validation import Experiment
from simsched.results.sheets import read_curves


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
