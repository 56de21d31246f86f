"""Agents, which run with a job: its measurements, the fit of its throughput, the choice of its batch; no policies."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
