"""Lower bounds that hold for every schedule, with certificates that a few lines of code verify."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
