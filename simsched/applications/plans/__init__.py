"""Files of large models, of the hardware they train on, and of the steps that were measured."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
