"""ElasticFlow's artifact: its own bookkeeping of slots, plans and queues, which the engine carries out.

Everything peculiar to the published simulator of ElasticFlow (Gu et al., ASPLOS'23) is in this folder.
"""

from .edf import Edf
from .elastic import Elastic
from .gandiva import Gandiva
from .themis import Themis
from .tiresias import Tiresias

__all__ = ["Edf", "Elastic", "Gandiva", "Themis", "Tiresias"]
