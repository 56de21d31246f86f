"""The result tables: their columns, how they are written and read, and what is computed from them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
