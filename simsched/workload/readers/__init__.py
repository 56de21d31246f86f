"""Readers of cluster traces and lists of jobs; one function detects the format from the content and reads it.

The readers need pandas and are loaded only when a file is read.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
