"""How fast jobs run that share a GPU; which jobs share one, and when, is decided elsewhere."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
