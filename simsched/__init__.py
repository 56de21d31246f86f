"""simsched: a discrete-time, trace-driven simulator of deep-learning clusters.

`import simsched as sim` offers `sim.run`, `sim.simulate`, `sim.drive`, `sim.read_run` and `sim.read_trace`, loaded on
first use (see `simsched.api`).
"""

from simsched.version import __version__

__all__ = [
    "RunResults",
    "Simulation",
    "SimulationResults",
    "Terms",
    "__version__",
    "drive",
    "read_run",
    "read_trace",
    "results_of",
    "run",
    "simulate",
]


def __getattr__(name: str) -> object:
    """Load a name of `simsched.api` on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'simsched' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module("simsched.api"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
