"""Tools to test policies: the conformance kit, and builders of views and workloads."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
