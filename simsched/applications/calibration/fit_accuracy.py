"""Compares fitted applications with measurements, by kind of placement and for two forms of step times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simsched.applications.calibration.application_fit import fit_seven, fitted_efficiency, true_efficiency
from simsched.applications.calibration.step_fit import Measured, step_errors
from simsched.applications.catalogue import ApplicationCatalogue
from simsched.applications.measurements import read_folder
from simsched.errors import input_error
from simsched.model import Application
from simsched.model.fitted import FittedApplication
from simsched.model.measured import MeasuredApplication
from simsched.model.step_model import SevenParameters, StepModel

Floats = NDArray[np.float64]

#: Kinds of placement by least and most nodes; a single GPU is a separate kind.
KINDS: Mapping[str, tuple[int, int]] = {
    "1 GPU": (1, 1),
    "1 node": (1, 1),
    "2 nodes": (2, 2),
    "3-4 nodes": (3, 4),
    "more nodes": (5, 1_000_000),
}


@dataclass(frozen=True)
class StepErrors:
    """Absolute relative errors of step times: mean, largest, and means by kind of placement (those measured)."""

    mean: float
    worst: float
    kinds: Mapping[str, float]


@dataclass(frozen=True)
class Truth:
    """The accuracy of an application against `points` measured step times and `curves` x epochs of efficiency.

    `shipped` is the application's form of step times, `seven` the seven-parameter form fitted to the same measurements.
    Efficiency: mean and largest absolute error, and the error of its mean inverse over training, i.e. of the total
    training time, at the batch size where it is largest.
    """

    name: str
    points: int
    shipped: StepErrors
    seven: StepErrors
    efficiency_mean: float
    efficiency_worst: float
    training_worst: float


def compare_folder(
    folder: Path, applications: Path | None = None, *, gpu_type: str = "t4", bounds: str | None = None
) -> list[Truth]:
    """Compare the measurements in a folder with the applications of the same names, by default the shipped ones.

    Raises `InputError` for malformed measurements, and if no fitted application has the name of a measured one.
    """
    known = ApplicationCatalogue.load(applications)
    measured = read_folder(folder, gpu_type=gpu_type, bounds=bounds)
    missing = [name for name in measured if not isinstance(known.applications.get(name), FittedApplication)]
    if missing:
        raise input_error(known.origin, f"has no fitted application '{missing[0]}', which {folder} measures")
    return [compare(one, known.applications[name]) for name, one in sorted(measured.items())]


def compare(measured: MeasuredApplication, fitted: Application) -> Truth:
    """Compare one application with its measurements."""
    assert isinstance(fitted, FittedApplication)
    table = Measured.of(measured)
    off = np.abs(fitted_efficiency(measured, fitted) - true_efficiency(measured))
    longer = (1 / fitted_efficiency(measured, fitted)).mean(axis=1) / (1 / true_efficiency(measured)).mean(axis=1) - 1
    return Truth(
        measured.name,
        len(table.step_s),
        _step_errors(table, fitted.step_models[measured.gpu_types[0]]),
        _step_errors(table, SevenParameters(fit_seven(table))),
        float(off.mean()),
        float(off.max()),
        float(longer[np.argmax(np.abs(longer))]),
    )


def _step_errors(table: Measured, model: StepModel) -> StepErrors:
    off, _ = step_errors(table, model)
    kinds = {name: off[_of_kind(table, name)] for name in KINDS}
    means = {name: float(errors.mean()) for name, errors in kinds.items() if len(errors)}
    return StepErrors(float(off.mean()), float(off.max()), means)


def _of_kind(table: Measured, kind: str) -> NDArray[np.bool_]:
    nodes, alone = table.placements.nodes, table.placements.gpus == 1
    fewest, most = KINDS[kind]
    return np.asarray((nodes >= fewest) & (nodes <= most) & (alone == (kind == "1 GPU")), dtype=np.bool_)
