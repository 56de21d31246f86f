"""The contract between a scheduling policy and the engine, and what goes with it; never the engine."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
