"""The way in from Python: run experiments, simulate without files, read results as pandas tables; no command line.

Each of these is loaded when it is first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
