"""simsched: a discrete-time, trace-driven simulator of deep-learning clusters.

`import simsched as sim` offers `sim.run`, `sim.simulate`, `sim.drive`, `sim.read_run`, `sim.read_trace` and
`sim.score`, loaded on first use (see `simsched.api`).
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
    "score",
    "simulate",
]


def __getattr__(name: str) -> object:
    """Load a name of `simsched.api`, or the referee, on first use."""
    if name not in __all__:
        raise AttributeError(f"module 'simsched' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module("simsched.operators.score" if name == "score" else "simsched.api"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
