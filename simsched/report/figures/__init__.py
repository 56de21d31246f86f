"""Figures of results and models, and all that needs matplotlib; tables and pages stand beside."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
