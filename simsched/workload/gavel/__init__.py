"""The workloads of Gavel (OSDI'20): its job types, its seeded generator, and the trace formats of Gavel and Shockwave.

The table of rates is in `simsched.applications`, the recipe in `simsched.workload.recipes`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
