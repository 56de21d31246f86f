"""A Gymnasium environment in which a learner makes the decisions of a simulation, and a learner (extra `gym`).

`import simsched.gym` registers it as `simsched/Scheduling-v0`.
"""

from importlib.util import find_spec

import lazy_loader

from simsched.errors import extra

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

if find_spec("gymnasium") is not None:
    import gymnasium

    gymnasium.register(id="simsched/Scheduling-v0", entry_point="simsched.gym.environment:SchedulingEnv")
else:

    def __getattr__(name: str) -> object:
        """Explain how to install what the environment needs."""
        message = f"simsched.gym.{name} needs the package 'gymnasium'; install it: {extra('gym')}"
        raise ImportError(message)
