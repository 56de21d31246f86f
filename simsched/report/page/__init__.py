"""The HTML page that gathers runs; the figures on it are drawn by `report.figures`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
