"""The way in from Python: run experiments, simulate without files, read results as pandas tables; no command line.

Each of these is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simsched.api.results import RunResults, read_run
    from simsched.api.running import run
    from simsched.api.simulation import Simulation, simulate
    from simsched.api.traces import read_trace

__all__ = ["RunResults", "Simulation", "read_run", "read_trace", "run", "simulate"]

_PLACES = {
    "RunResults": "results",
    "Simulation": "simulation",
    "read_run": "results",
    "read_trace": "traces",
    "run": "running",
    "simulate": "simulation",
}


def __getattr__(name: str) -> object:
    """Load what is asked for."""
    if name not in _PLACES:
        message = f"module 'simsched.api' has no attribute '{name}'"
        raise AttributeError(message)
    return getattr(import_module(f"simsched.api.{_PLACES[name]}"), name)
