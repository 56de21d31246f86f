"""Rules that change the batch of a running training, with no scheduler's doing; pure functions of state and metrics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
