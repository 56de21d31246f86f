"""Turns shares of time into rounds: which jobs run in the next round, on which GPU type, and on which GPUs.

`simsched.toolkit.programs` computes the shares; the engine carries a round out.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
