"""Fits applications to folders of measurements, and reports the errors of the fits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simsched.agent import fit
from simsched.applications.calibration.loss_fit import fit_loss
from simsched.applications.calibration.noise_fit import fit_noise
from simsched.applications.calibration.scaling_fit import fit_scaling
from simsched.applications.calibration.step_fit import Measured, fit_placement_model, step_errors
from simsched.applications.catalogue import ApplicationCatalogue
from simsched.applications.file_format import ApplicationDocument, document_of
from simsched.applications.measurements import read_folder
from simsched.applications.published import APPLICATIONS, POLLUX_BOUNDS, PublishedApplication
from simsched.applications.tuned_requests import configurations
from simsched.errors import input_error
from simsched.files import write_text
from simsched.model import Application
from simsched.model.application import StepTime
from simsched.model.fitted import FittedApplication, Training
from simsched.model.goodput import efficiency
from simsched.model.measured import MeasuredApplication
from simsched.model.step_model import SevenParameters, StepModel
from simsched.model.throughput import ThroughputParams

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FitErrors:
    """Errors of a fitted application against its measurements; all are fractions.

    Step times: mean and largest absolute relative error over all placements and per-GPU batches that jobs can use, the
    mean over consolidated placements, the mean error of computation alone, and the mean error of the seven-parameter
    form fitted to the same measurements. Efficiency: mean and largest absolute error over epochs and measured batch
    sizes.
    """

    step_mean: float
    step_worst: float
    step_consolidated: float
    compute_mean: float
    seven_parameter_mean: float
    efficiency_mean: float
    efficiency_worst: float
    points: int


@dataclass(frozen=True)
class FitResult:
    """A fitted application, its errors, and its document."""

    application: FittedApplication
    params: ThroughputParams
    errors: FitErrors
    document: ApplicationDocument


def fit_folder(folder: Path, *, gpu_type: str = "t4", bounds: str | None = None) -> list[FitResult]:
    """Fit every application in a folder of measurements, sorted by name.

    `gpu_type` and published `bounds` are those of `simsched.applications.measurements.read_folder`; with the bounds of
    Pollux, the documents include the data of its Table 1.

    Raises `InputError` for malformed measurements.
    """
    found = read_folder(folder, gpu_type=gpu_type, bounds=bounds)
    table1 = APPLICATIONS if bounds == POLLUX_BOUNDS else {}
    return [fit_application(measured, table1.get(name)) for name, measured in sorted(found.items())]


def write_documents(results: list[FitResult], folder: Path) -> list[Path]:
    """Write one `NAME.yaml` for each result, whole or not at all; returns the paths.

    Raises `InputError` if the folder cannot be written.
    """
    paths = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for result in results:
            path = folder / f"{result.application.name}.yaml"
            write_text(path, _header(result.errors) + result.document.text())
            paths.append(path)
    except OSError as error:
        raise input_error(folder, f"cannot be written: {error.strerror}", "name another folder with --out") from None
    return paths


def _header(errors: FitErrors) -> str:
    """Return comments on the origin of the file and the errors of the fit."""
    return (
        "# Written by `simsched application fit`. Against the measurements it was fitted to, mean absolute error of\n"
        f"# step time {errors.step_mean:.1%} (worst {errors.step_worst:.0%}; seven-parameter form "
        f"{errors.seven_parameter_mean:.1%}), of efficiency {errors.efficiency_mean:.2%}.\n"
    )


def fit_application(measured: MeasuredApplication, published: PublishedApplication | None = None) -> FitResult:
    """Fit one measured application: step times, noise over training, and the seven-parameter form.

    Step times are fitted by class of placement first, then corrected for the scaling of tuned jobs' batches.
    """
    table = Measured.of(measured)
    tuned = tuple(configurations(measured, gpu_type=measured.gpu_types[0]))
    model = fit_scaling(measured, fit_placement_model(table), {batch for _, batch in tuned})
    seven = fit_seven(table)
    application = FittedApplication(
        measured.name,
        measured.limits,
        _fit_training(measured),
        {measured.gpu_types[0]: model},
        tuned=tuned,
        fixed_batch_size=measured.fixed_batch_size,
        max_gpus=measured.max_gpus,
        restart_delay_s=measured.restart_delay_s,
        loss_curve=fit_loss(measured, published.metric) if published and published.metric else None,
    )
    document = document_of(application, {measured.gpu_types[0]: seven}, published)
    # The errors are those of the written application, after rounding.
    written = document.application()
    return FitResult(written, seven, _errors(measured, table, written, seven), document)


def _fit_training(measured: MeasuredApplication) -> Training:
    last, noise = measured.epochs - 1, fit_noise(measured)
    plain = Training(
        measured.epochs,
        measured.epoch_end(last) / measured.epochs,
        noise,
        measured.batch_sizes,
        (1.0,) * len(measured.batch_sizes),
    )
    implied = FittedApplication(measured.name, measured.limits, plain, {})
    sizes = measured.batch_sizes
    ratios = tuple(measured.iterations(size, last) / implied.iterations(size, last) for size in sizes)
    return replace(plain, iterations_ratio=ratios)


def fit_seven(table: Measured) -> ThroughputParams:
    """Fit the seven-parameter form to all measurements, like an agent that has seen every placement."""
    return fit(_profile(table)).params


def _profile(table: Measured) -> dict[tuple[int, int, int], StepTime]:
    """Average the measurements with the same numbers of nodes and GPUs, as an agent sees them."""
    gathered: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
    counts = zip(table.placements.nodes, table.placements.gpus, table.local_bsz, strict=True)
    for (nodes, gpus, size), step, sync in zip(counts, table.step_s, table.sync_s, strict=True):
        gathered.setdefault((int(nodes), int(gpus), int(size)), []).append((float(step), float(sync)))
    return {key: StepTime(*np.mean(times, axis=0).tolist()) for key, times in sorted(gathered.items())}


def _errors(
    measured: MeasuredApplication, table: Measured, fitted: FittedApplication, seven: ThroughputParams
) -> FitErrors:
    gpu_type = measured.gpu_types[0]
    step, compute = step_errors(table, fitted.step_models[gpu_type])
    of_seven, _ = step_errors(table, SevenParameters(seven))
    off = np.abs(true_efficiency(measured) - fitted_efficiency(measured, fitted))
    return FitErrors(
        float(step.mean()),
        float(step.max()),
        float(step[table.consolidated].mean()),
        float(compute.mean()),
        float(of_seven.mean()),
        float(off.mean()),
        float(off.max()),
        len(step),
    )


def true_efficiency(measured: MeasuredApplication) -> Floats:
    """Return the measured statistical efficiency, batch sizes x epochs, within (0, 1]."""
    scales = [size / measured.limits.init_batch_size for size in measured.batch_sizes]
    return np.array(
        [
            [min(float(efficiency(measured.gradient(size, epoch), scale)), 1.0) for epoch in range(measured.epochs)]
            for size, scale in zip(measured.batch_sizes, scales, strict=True)
        ]
    )


def fitted_efficiency(measured: MeasuredApplication, fitted: FittedApplication) -> Floats:
    """Return the fitted statistical efficiency at the measured batch sizes, batch sizes x epochs."""
    return np.array(
        [
            [
                float(efficiency(fitted.gradient(size, epoch), size / fitted.limits.init_batch_size))
                for epoch in range(measured.epochs)
            ]
            for size in measured.batch_sizes
        ]
    )


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
