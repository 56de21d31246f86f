"""YAML with line numbers, dotted keys and strict checking; the packages that use it define the keys."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
