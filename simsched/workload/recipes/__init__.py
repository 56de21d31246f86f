"""Recipes that turn a trace into jobs, one per file; `workload.readers` reads the traces."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
