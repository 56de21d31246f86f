"""Traces, generated or read, and the job lists made from them: anything becomes a list of `JobSpec`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
