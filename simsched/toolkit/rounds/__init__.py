"""How shares of time become rounds: who runs in the next round, on what GPU type, and on which GPUs.

Computing the shares belongs to `simsched.toolkit.programs`; carrying a round out belongs to the engine.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
