from .constant import ConstantSharing as ConstantSharing
from .contract import Colocation as Colocation, GuaranteedFirst as GuaranteedFirst
from .pairs import (
    TEMPLATE as TEMPLATE,
    Kind as Kind,
    PairTable as PairTable,
    pairs_from_gavel as pairs_from_gavel,
    read_pairs as read_pairs,
    write_pairs as write_pairs,
)
from .stages import (
    GapFilling as GapFilling,
    StageInterleaving as StageInterleaving,
    gap_turns as gap_turns,
    group_s as group_s,
)
from .time_slicing import TimeSlicing as TimeSlicing
