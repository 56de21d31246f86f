"""Readers of cluster traces and of lists of jobs: one function tells the format by the content and reads it.

The readers themselves, which need pandas, are loaded when a file is read.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
