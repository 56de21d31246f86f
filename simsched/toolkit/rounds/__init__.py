"""How shares of time become rounds: who runs in the next round, on what GPU type, and on which GPUs.

Computing the shares belongs to `simsched.toolkit.programs`; carrying a round out belongs to the engine.
"""

from simsched.toolkit.rounds.mechanism import Grant, RoundOptions, Rounds, Unit
from simsched.toolkit.rounds.packed import PackedShares
from simsched.toolkit.rounds.places import Places, keep_places
from simsched.toolkit.rounds.policy import SharesPolicy, Snapshot
from simsched.toolkit.rounds.rates import Speeds
from simsched.toolkit.rounds.seats import Seats

__all__ = [
    "Grant",
    "PackedShares",
    "Places",
    "RoundOptions",
    "Rounds",
    "Seats",
    "SharesPolicy",
    "Snapshot",
    "Speeds",
    "Unit",
    "keep_places",
]
