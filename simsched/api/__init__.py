"""The way in from Python: run experiments, simulate without files, read results as pandas tables; no command line."""

from simsched.api.results import RunResults, read_run
from simsched.api.running import run
from simsched.api.simulation import Simulation, simulate
from simsched.api.traces import read_trace

__all__ = ["RunResults", "Simulation", "read_run", "read_trace", "run", "simulate"]
