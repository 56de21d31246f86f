"""The recipes that turn a trace into jobs, a file each; reading traces belongs to `workload.readers`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
