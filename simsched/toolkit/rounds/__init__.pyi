from .mechanism import Grant as Grant, RoundOptions as RoundOptions, Rounds as Rounds, Unit as Unit
from .places import whole_places as whole_places
from .policy import PackedShares as PackedShares, SharesPolicy as SharesPolicy, Snapshot as Snapshot
from .rates import Speeds as Speeds
