"""Running the cells of an experiment and keeping their results; `experiment` says what a cell is made of."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
