"""Reads measured applications: one folder for each, in the layout published with Pollux (OSDI'21).

A folder holds `placements.csv` (placement,local_bsz,step_time,sync_time), `scalability.csv`
(num_nodes,num_replicas,local_bsz,step_time,sync_time) and a `validation-<batch size>.csv` for each of at least two
total batch sizes, with a row for every epoch (progress,iteration,grad_sqr,grad_var, and optionally metric, the
evaluation; other columns are ignored with a warning).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from simsched.applications.published import BOUNDS
from simsched.errors import InputError, Problem, input_error, nearest
from simsched.model.measured import Bounds, MeasuredApplication, ScalabilityRow, StepTable, TrainingCurve
from simsched.model.placement import Shape, canonical_rotation
from simsched.reading import Record, read_records

PLACEMENTS = "placements.csv"
SCALABILITY = "scalability.csv"
_VALIDATION = re.compile(r"validation-(\d+)\.csv")

Number = Callable[[str], float]


def read_folder(
    folder: Path, *, gpu_type: str = "t4", only: str | None = None, bounds: str | None = None
) -> dict[str, MeasuredApplication]:
    """Read every application of a folder of measurements, by name (the names of its subfolders), or `only` one of them.

    They were measured on GPUs of `gpu_type`. `bounds` names published bounds by application that the measurements lack
    (`simsched.applications.published.BOUNDS`). Skips subfolders without measurements. Raises `InputError` with every
    problem.
    """
    if not folder.is_dir():
        raise input_error(
            folder, "is not a folder", "name a folder that holds one folder of measurements per application"
        )
    known = bounds_named(bounds)
    found: dict[str, MeasuredApplication] = {}
    problems: list[Problem] = []
    for place in sorted(path for path in folder.iterdir() if only in (None, path.name) and _is_measured(path)):
        try:
            found[place.name] = read_application(place, gpu_type=gpu_type, bounds=known.get(place.name))
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(*problems)
    if not found:
        raise input_error(folder, f"holds no application: no subfolder has a {PLACEMENTS}")
    return found


def bounds_named(name: str | None) -> Mapping[str, Bounds]:
    """Return published bounds by application; raises `InputError` if none have that name."""
    if name is None:
        return {}
    if name not in BOUNDS:
        raise input_error("bounds", f"no published bounds are called '{name}'", nearest(name, BOUNDS))
    return BOUNDS[name]


def _is_measured(folder: Path) -> bool:
    """Return whether a folder has at least one file of measurements, so that the others must exist."""
    named = ((folder / name).is_file() for name in (PLACEMENTS, SCALABILITY))
    return any(named) or any(folder.glob("validation-*.csv"))


def read_application(folder: Path, *, gpu_type: str = "t4", bounds: Bounds | None = None) -> MeasuredApplication:
    """Read one application; its name is the folder's.

    `bounds` adds what the measurements lack, by default nothing. Raises `InputError` naming file, line and column.
    """
    placements = _read_placements(folder / PLACEMENTS)
    curves = _read_curves(folder)
    scalability = _read_scalability(folder / SCALABILITY)
    known = Bounds() if bounds is None else bounds
    application = MeasuredApplication(folder.name, placements, scalability, curves, bounds=known, gpu_type=gpu_type)
    _check_coverage(folder / PLACEMENTS, application)
    return application


def _number(path: Path, row: Record, column: str, *, lowest: float = -math.inf, above: float = -math.inf) -> float:
    """Read a finite number of at least `lowest` and above `above`."""
    line, record = row
    text = record[column]
    try:
        value = float(text)
    except (TypeError, ValueError):
        raise input_error(path, f"{column} is not a number: {text!r}", line=line) from None
    if not math.isfinite(value):
        raise input_error(path, f"{column} is {text}, not a finite number", line=line)
    if value < lowest or value <= above:
        bound = f"at least {lowest:g}" if value < lowest else f"more than {above:g}"
        raise input_error(path, f"{column} must be {bound}, not {text}", line=line)
    return value


def _count(path: Path, row: Record, column: str) -> int:
    value = _number(path, row, column, lowest=1)
    if value != int(value):
        raise input_error(path, f"{column} must be a whole number, not {row[1][column]}", line=row[0])
    return int(value)


def _times(path: Path, row: Record) -> tuple[float, float]:
    """Read seconds of a step and of synchronisation; the latter must be smaller, since computation takes time."""
    step = _number(path, row, "step_time", above=0.0)
    sync = _number(path, row, "sync_time", lowest=0.0)
    if sync >= step:
        raise input_error(path, f"sync_time {sync:g} must be less than step_time {step:g}", line=row[0])
    return step, sync


def _read_placements(path: Path) -> dict[Shape, StepTable]:
    gathered: dict[Shape, dict[int, tuple[float, float]]] = {}
    for row in read_records(path, ("placement", "local_bsz", "step_time", "sync_time")):
        shape = _shape(path, row)
        size = _count(path, row, "local_bsz")
        times = gathered.setdefault(shape, {})
        if size in times:
            raise input_error(path, f"placement {row[1]['placement']} has local_bsz {size} twice", line=row[0])
        times[size] = _times(path, row)
    if not gathered:
        raise input_error(path, "holds no placement", "give step times of at least placement 1")
    tables = {}
    for shape, times in gathered.items():
        sizes = sorted(times)
        if len(sizes) < 2:
            raise input_error(
                path, f"placement {_text(shape)} has one local_bsz, too few to interpolate", "measure two or more"
            )
        tables[shape] = StepTable(
            tuple(sizes), tuple(times[size][0] for size in sizes), tuple(times[size][1] for size in sizes)
        )
    return tables


def _shape(path: Path, row: Record) -> Shape:
    text = row[1]["placement"] or ""
    if not re.fullmatch(r"[1-9]+", text):
        remedy = "write the GPUs of each node as digits, for instance 134 for three nodes"
        raise input_error(path, f"unknown placement {text!r}", remedy, line=row[0])
    shape = tuple(int(digit) for digit in text)
    smallest = canonical_rotation(shape)
    if shape != smallest:
        raise input_error(
            path, f"placement {text} is not its smallest rotation", f"write {_text(smallest)}", line=row[0]
        )
    return shape


def _text(shape: Shape) -> str:
    return "".join(str(gpus) for gpus in shape)


def _read_scalability(path: Path) -> list[ScalabilityRow]:
    rows = []
    seen: set[tuple[int, int, int]] = set()
    for row in read_records(path, ("num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")):
        key = (_count(path, row, "num_nodes"), _count(path, row, "num_replicas"), _count(path, row, "local_bsz"))
        if key[1] < key[0]:
            raise input_error(path, f"num_replicas {key[1]} is less than num_nodes {key[0]}", line=row[0])
        if key in seen:
            raise input_error(
                path, f"{key[1]} replicas on {key[0]} nodes with local_bsz {key[2]} occur twice", line=row[0]
            )
        seen.add(key)
        rows.append(ScalabilityRow(*key, *_times(path, row)))
    return rows


def _read_curves(folder: Path) -> list[TrainingCurve]:
    files = {}
    for path in sorted(folder.glob("validation-*.csv")):
        match = _VALIDATION.fullmatch(path.name)
        if match is None or int(match[1]) < 1:
            raise input_error(path, "its name has no batch size", "call it validation-<total batch size>.csv")
        files[int(match[1])] = path
    if len(files) < 2:
        remedy = "give one for the smallest and one for the largest total batch size, and some between"
        raise input_error(folder, f"has {len(files)} files validation-<batch>.csv, which bracket no batch size", remedy)
    curves = [_read_curve(files[size], size) for size in sorted(files)]
    for curve in curves[1:]:
        if len(curve.progress) != len(curves[0].progress):
            message = (
                f"has {len(curve.progress)} epochs, {files[curves[0].batch_size].name} has {len(curves[0].progress)}"
            )
            raise input_error(files[curve.batch_size], message, "give every batch size the same epochs")
    return curves


def _read_curve(path: Path, batch_size: int) -> TrainingCurve:
    table: list[tuple[float, float, float, float]] = []
    metric: list[float] = []
    for row in read_records(path, ("progress", "iteration", "grad_sqr", "grad_var"), ("metric",)):
        last_progress, last_iteration = table[-1][:2] if table else (0.0, 0.0)
        table.append(
            (
                _number(path, row, "progress", above=last_progress),
                _number(path, row, "iteration", above=last_iteration),
                _number(path, row, "grad_sqr"),
                _number(path, row, "grad_var", above=0.0),
            )
        )
        if "metric" in row[1]:
            metric.append(_number(path, row, "metric"))
    if not table:
        raise input_error(path, "holds no epoch")
    progress, iterations, sqr, var = zip(*table, strict=True)
    return TrainingCurve(batch_size, progress, iterations, sqr, var, tuple(metric))


def _check_coverage(path: Path, application: MeasuredApplication) -> None:
    """Reject placements that do not bracket the per-GPU batches that jobs may use."""
    limits = application.limits
    if (1,) not in application.placements:
        raise input_error(path, "lacks placement 1", "give the step times of a single GPU")
    if limits.min_local_bsz > limits.init_batch_size:
        message = f"its smallest local_bsz {limits.min_local_bsz} exceeds the initial batch {limits.init_batch_size}"
        raise input_error(path, message, "measure smaller batches, or remove the smallest validation file")
    for shape, table in application.placements.items():
        most = min(limits.max_local_bsz, limits.max_batch_size // sum(shape))
        if (
            most >= limits.min_local_bsz
            and not table.local_bsz[0] <= limits.min_local_bsz <= most <= table.local_bsz[-1]
        ):
            message = (
                f"placement {_text(shape)} has local_bsz {table.local_bsz[0]} to {table.local_bsz[-1]}, which do not "
                f"bracket {limits.min_local_bsz} to {most}"
            )
            raise input_error(path, message, "measure every placement with all batch sizes it can hold")
