"""The published batch regimes that ship with simsched, read from `workloads/batch-regimes/`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from simsched.model import BatchRegimes, CriticalEpochs, Window
from simsched.paths import data_folder


def shockwave_regimes() -> Mapping[str, BatchRegimes]:
    """Return the regimes of the models in Shockwave's evaluation, by model (NSDI'23, artifact)."""
    path = data_folder("workloads") / "batch-regimes" / "shockwave.json"
    models: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))["models"]
    return MappingProxyType({name: _regimes(entry) for name, entry in sorted(models.items())})


def _regimes(entry: Mapping[str, Any]) -> BatchRegimes:
    doublings = {
        (int(batch), int(gpus)): tuple(epochs)
        for batch, by_gpus in entry.get("doublings", {}).items()
        for gpus, epochs in by_gpus.items()
    }
    critical = entry.get("critical")
    return BatchRegimes(
        samples=entry["samples"],
        smallest=entry["smallest_batch"],
        largest=entry["largest_batch"],
        doublings=MappingProxyType(doublings),
        critical=_critical(critical) if critical else None,
    )


def _critical(entry: Mapping[str, Any]) -> CriticalEpochs:
    return CriticalEpochs(
        windows=_windows(entry["windows"]),
        period=entry.get("period", 0),
        by_batch=MappingProxyType({int(batch): _windows(w) for batch, w in entry.get("by_batch", {}).items()}),
        in_profile=_windows(entry.get("in_profile", ())),
    )


def _windows(pairs: Any) -> tuple[Window, ...]:
    return tuple((first, end) for first, end in pairs)
