"""Fits applications to measurements and evaluates the fits; `applications` defines the file format."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
