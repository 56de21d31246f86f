"""The experiment: what its YAML may say, its checks and its grid of cells; running them is for `execution`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
