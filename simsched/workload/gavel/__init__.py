"""The workloads of Gavel (OSDI'20): its job types, its seeded generator, its trace format and its table of rates.

Turning these jobs into an experiment's workload does not belong here.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
