"""Gavel's table of rates: steps per second of a job type on a GPU type, alone and beside another job type."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.errors import input_error
from simsched.reading import read_json

Floats = npt.NDArray[np.float64]

#: A job type and its number of GPUs.
Kind = tuple[str, int]
_ALONE = "null"
_SCATTERED = "_unconsolidated"


@dataclass(frozen=True)
class GavelRates:
    """Optimizer steps per second of whole jobs (all their GPUs together), consolidated placement.

    `alone[gpu_type][kind]` is a rate; `beside[gpu_type][kind, other]` holds the rates of both when they share the same
    GPUs. A rate of 0 means out of memory or not measured; `warnings` names the kinds with a rate of 0 alone.
    """

    alone: Mapping[str, Mapping[Kind, float]]
    beside: Mapping[str, Mapping[tuple[Kind, Kind], tuple[float, float]]]
    warnings: tuple[str, ...] = ()

    @property
    def gpu_types(self) -> tuple[str, ...]:
        """List the GPU types in alphabetical order."""
        return tuple(sorted(self.alone))

    def row(self, kind: Kind, gpu_types: tuple[str, ...]) -> Floats:
        """Return the rates of a kind alone, one for each of `gpu_types`, in steps per second."""
        return np.array([self.alone[gpu_type].get(kind, 0.0) for gpu_type in gpu_types])

    def pair(self, kind: Kind, other: Kind, gpu_types: tuple[str, ...]) -> Floats:
        """Return the rates of two kinds that share GPUs, shape (2, types); zeros where it was not measured."""
        rates = [self.beside[gpu_type].get((kind, other), (0.0, 0.0)) for gpu_type in gpu_types]
        return np.array(rates, dtype=np.float64).reshape(len(gpu_types), 2).T


def read_rates(path: Path, *, scattered: bool = False) -> GavelRates:
    """Read a file of the layout of Gavel's `simulation_throughputs.json`.

    `scattered` keeps the GPU types whose names end in `_unconsolidated`, which its simulator drops. Raises `InputError`
    where the file is no such table.
    """
    table = read_json(path, "give a table of rates in Gavel's layout")
    if not isinstance(table, dict):
        raise input_error(path, "is no table of rates", "its keys are GPU types, below them job types")
    kinds: dict[str, Kind] = {}
    alone: dict[str, Mapping[Kind, float]] = {}
    beside: dict[str, Mapping[tuple[Kind, Kind], tuple[float, float]]] = {}
    for gpu_type in sorted(table):
        if scattered or not gpu_type.endswith(_SCATTERED):
            alone[gpu_type], beside[gpu_type] = _one_type(path, gpu_type, table[gpu_type], kinds)
    zeros = [
        f"{gpu_type}: {name} on {gpus} GPUs has rate 0 (out of memory or not measured)"
        for gpu_type, rates in alone.items()
        for (name, gpus), rate in sorted(rates.items())
        if rate == 0
    ]
    return GavelRates(MappingProxyType(alone), MappingProxyType(beside), tuple(zeros))


def _one_type(
    path: Path, gpu_type: str, table: Any, kinds: dict[str, Kind]
) -> tuple[Mapping[Kind, float], Mapping[tuple[Kind, Kind], tuple[float, float]]]:
    alone: dict[Kind, float] = {}
    beside: dict[tuple[Kind, Kind], tuple[float, float]] = {}
    try:
        for key, row in table.items():
            kind = kinds.setdefault(key, _kind(key))
            for other_key, value in row.items():
                if other_key == _ALONE:
                    alone[kind] = float(value)
                else:
                    if other_key not in kinds:
                        kinds[other_key] = _kind(other_key)
                    beside[kind, kinds[other_key]] = (float(value[0]), float(value[1]))
    except (AttributeError, TypeError, ValueError, IndexError, SyntaxError) as error:
        message = f"the table of '{gpu_type}' is not in Gavel's layout: {error}"
        raise input_error(path, message, "see its simulation_throughputs.json") from error
    for rate in (*alone.values(), *(rate for pair in beside.values() for rate in pair)):
        if not 0 <= rate < float("inf"):
            raise input_error(path, f"the table of '{gpu_type}' holds the rate {rate}", "rates are steps per second")
    return MappingProxyType(alone), MappingProxyType(beside)


def _kind(key: str) -> Kind:
    name, gpus = ast.literal_eval(key)
    return str(name), int(gpus)
