"""The result tables: their columns, writing and reading them, and the metrics computed from them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
