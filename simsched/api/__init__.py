"""The Python API: run experiments, simulate without files, read results as pandas tables; no command line.

Each function is loaded on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
