"""Sources of applications: shipped files, users' files, measurements and tables; `model` has their physics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
