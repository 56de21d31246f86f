"""Reads tables of measured steps: each row has a model, a plan, a global batch, and the seconds of a step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simsched.applications.plans.hardware_file import HardwareDocument
from simsched.errors import InputError, Problem, input_error
from simsched.model.plans import ModelShape, Plan, Recomputation
from simsched.reading import number, read_records, whole_number

_NEEDED = ("gpus", "global_batch", "micro_batch", "hidden", "heads", "layers", "seq", "tp", "dp", "pp", "seconds")
_OPTIONAL = ("model", "params_b", "ffn", "kv_heads", "vocab", "gated_mlp", "cp", "interleave", "recompute", "zero")
_TOLD = ("dtype", "flag", "accumulation", "runs", "release")
_MEGATRON_VOCABULARY = 51200
_RECOMPUTE: Mapping[str, tuple[Recomputation, bool]] = {
    "none": ("none", False),
    "none_sequence_parallel": ("none", True),
    "selective": ("selective", False),
    "selective_sequence_parallel": ("selective", True),
    "full": ("full", False),
    "full_sequence_parallel": ("full", True),
}


@dataclass(frozen=True)
class MeasuredStep:
    """The measured seconds per step of a model's plan at a global batch (sequences)."""

    model: str
    shape: ModelShape
    plan: Plan
    global_batch: int
    seconds: float
    line: int


@dataclass(frozen=True)
class MeasuredSteps:
    """The valid rows of a table, and the number of other rows by reason."""

    rows: tuple[MeasuredStep, ...]
    left_out: Mapping[str, int]
    notes: tuple[str, ...]


def read_steps(path: Path, hardware: HardwareDocument) -> MeasuredSteps:
    """Read a table as measured on some hardware.

    Missing columns default to the profile (recomputation, sequence parallelism, ZeRO), to GPT (`ffn` four times
    `hidden`, as many `kv_heads` as `heads`), or to 1. Rows with another `dtype` than the profile's, or with the `flag`
    outlier, are left out. Raises `InputError` naming the line of every wrong value.
    """
    rows: list[MeasuredStep] = []
    left_out: dict[str, int] = {}
    problems: list[Problem] = []
    vocabulary_given = True
    for line, cells in read_records(path, _NEEDED, (*_OPTIONAL, *_TOLD)):
        vocabulary_given = vocabulary_given and bool(cells.get("vocab"))
        dtype = cells.get("dtype", "")
        reason = "flagged as outliers" if cells.get("flag") == "outlier" else ""
        if dtype and hardware.dtype and dtype != hardware.dtype:
            reason = f"of {dtype}, not {hardware.dtype}"
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            try:
                rows.append(_row(cells, hardware, line))
            except ValueError as error:
                problems.append(Problem(str(path), str(error), "correct the line, or leave it out", line))
    if problems:
        raise InputError(*problems)
    if not rows:
        raise input_error(path, "holds no valid row", f"left out: {left_out or 'none'}")
    notes = () if vocabulary_given else (f"a vocabulary of {_MEGATRON_VOCABULARY} is assumed where none is given",)
    return MeasuredSteps(tuple(rows), left_out, notes)


def _row(cells: Mapping[str, str], hardware: HardwareDocument, line: int) -> MeasuredStep:
    shape = _shape(cells)
    plan = _plan(cells, hardware)
    gpus, batch = _count(cells, "gpus"), _count(cells, "global_batch")
    if plan.gpus != gpus:
        raise ValueError(f"tp x pp x cp x dp is {plan.gpus}, but 'gpus' is {gpus}")
    if batch % (plan.data * plan.micro_batch):
        raise ValueError(f"a global batch of {batch} is not divisible by dp x micro_batch")
    seconds = number(cells["seconds"], "column 'seconds'")
    if seconds <= 0:
        raise ValueError(f"column 'seconds': '{cells['seconds']:.40}' is not a number above 0")
    usual = f"{cells['params_b']}B" if cells.get("params_b") else f"h{shape.hidden} L{shape.layers}"
    return MeasuredStep(cells.get("model") or usual, shape, plan, batch, seconds, line)


def _shape(cells: Mapping[str, str]) -> ModelShape:
    hidden, heads = _count(cells, "hidden"), _count(cells, "heads")
    gated = cells.get("gated_mlp", "").strip() or "0"
    if gated not in ("0", "1"):
        raise ValueError(f"column 'gated_mlp': '{gated:.40}' is neither 0 nor 1")
    mlp, kv_heads = _count(cells, "ffn", 4 * hidden), _count(cells, "kv_heads", heads)
    vocabulary = _count(cells, "vocab", _MEGATRON_VOCABULARY)
    return ModelShape(
        _count(cells, "layers"), hidden, mlp, heads, kv_heads, vocabulary, _count(cells, "seq"), gated == "1"
    )


def _plan(cells: Mapping[str, str], hardware: HardwareDocument) -> Plan:
    profile = hardware.profile
    tensor = _count(cells, "tp")
    said = cells.get("recompute", "").strip()
    if said and said not in _RECOMPUTE:
        raise ValueError(f"column 'recompute': '{said:.40}' is not one of {', '.join(_RECOMPUTE)}")
    usual = profile.space.recomputation[0], profile.sequence_parallel and tensor > 1
    recomputation, parallel = _RECOMPUTE[said] if said else usual
    zero = cells.get("zero", "").strip() or str(profile.space.zero[0])
    if zero not in ("0", "1", "2", "3"):
        raise ValueError(f"column 'zero': '{zero:.40}' is not a stage of ZeRO")
    counts = (_count(cells, "pp"), _count(cells, "dp"), _count(cells, "cp", 1), _count(cells, "micro_batch"))
    return Plan(tensor, *counts, _count(cells, "interleave", 1), recomputation, parallel, int(zero))


def _count(cells: Mapping[str, str], column: str, usual: int = 0) -> int:
    text = cells.get(column, "").strip()
    if not text and usual:
        return usual
    return whole_number(text, f"column '{column}'", least=1)
