"""How shares of time become rounds: who runs in the next round, on what GPU type, and on which GPUs.

Computing the shares belongs to `simsched.programs`; carrying a round out belongs to the engine.
"""

from simsched.policy.rounds.mechanism import Grant, RoundOptions, Rounds, Unit
from simsched.policy.rounds.packed import PackedShares
from simsched.policy.rounds.places import Places, keep_places
from simsched.policy.rounds.policy import SharesPolicy, Snapshot
from simsched.policy.rounds.rates import Speeds
from simsched.policy.rounds.seats import Seats

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
