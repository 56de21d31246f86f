"""Where applications come from: shipped files, a user's, measurements, tables; their physics is in `model`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
