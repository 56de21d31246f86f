"""Programs that compute shares of time on GPU types from rates, sizes and weights.

Rounding shares into rounds belongs to `simsched.toolkit.rounds`; where rates come from is the policy's business.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
