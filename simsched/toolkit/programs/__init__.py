"""Programs that compute shares of time on GPU types from rates, sizes and weights.

`simsched.toolkit.rounds` turns shares into rounds; policies supply the rates.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
