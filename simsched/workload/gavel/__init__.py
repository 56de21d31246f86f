"""The workloads of Gavel (OSDI'20): its job types, its seeded generator, and its trace format with Shockwave's.

Its table of rates belongs to `simsched.applications`, the recipe to `simsched.workload.recipes`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
