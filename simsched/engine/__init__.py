"""The simulation engine: clock, processes, state, random streams and invariants."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

#: The version of what a simulation means: raised whenever the same input gives different results.
SEMANTICS = 2
