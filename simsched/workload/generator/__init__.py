"""Generates traces like Microsoft's Philly, of any length, from its published statistics.

Jobs come in batches: jobs of one tenant with equal GPUs and one class of GPU-time, submitted seconds apart, with
similar run times. Each class has small and large batches, whose rate follows the hour of the week and drifts at random
over hours and days. A trace is generated week by week from one seed and never ends; the cost of a stretch depends only
on its own length.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
