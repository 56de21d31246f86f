"""Answers for the people who run a cluster, from its own log; no figures and no printing."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
