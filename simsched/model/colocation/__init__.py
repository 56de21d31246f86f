"""The speed of jobs that share a GPU; policies decide which jobs share one, and when."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
