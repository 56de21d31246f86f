"""Fitting applications to measurements and judging the fits; their file format belongs to `applications`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
