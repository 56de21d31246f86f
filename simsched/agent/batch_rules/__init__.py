"""Rules that change the batch of a training independently of the scheduler; pure functions of state and metrics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
