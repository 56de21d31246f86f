"""Muri's artifact: its own bookkeeping of progress, ends and groups, which the engine carries out.

Everything peculiar to the published simulator of Muri (Zhao et al., SIGCOMM'22) is in this folder.
"""

from .antman import AntMan
from .groups import Muri
from .queues import Queues, Shortest

__all__ = ["AntMan", "Muri", "Queues", "Shortest"]
