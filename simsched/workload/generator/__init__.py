"""Generates traces like Microsoft's Philly, of any length, from its published statistics.

Jobs come in batches: jobs of one tenant with equal GPUs and of one class of GPU-time, seconds apart, that run for about
as long. Each class has its own batches, small and large, with a rate that follows the hour of the week and wanders at
random over hours and days. Made week by week from one seed, a trace has no end, and any stretch costs what it holds.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
