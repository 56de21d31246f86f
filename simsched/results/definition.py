"""Tells by which definitions a summary was computed."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

#: The modules of this package on which a cell's summary depends.
_MODULES = (
    "arrow_tables",
    "by_type",
    "cost_metrics",
    "curves",
    "deadline_metrics",
    "energy",
    "failure_metrics",
    "fairness",
    "fragmentation",
    "metric",
    "metrics",
    "over_time",
    "power",
    "quality",
    "rho_metrics",
    "sheets",
    "stored",
    "summary",
    "time_metrics",
    "trial_metrics",
    "trials",
    "usage_metrics",
)


@cache
def summary_definition() -> str:
    """Hash the source of everything that a cell's summary is computed by, in 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for name in _MODULES:
        digest.update(name.encode() + b"\0" + (Path(__file__).parent / f"{name}.py").read_bytes() + b"\0")
    return digest.hexdigest()
