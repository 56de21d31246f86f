from .contract import (
    Colocation as Colocation,
    ConstantSharing as ConstantSharing,
    Guarantee as Guarantee,
    GuaranteedFirst as GuaranteedFirst,
    Resident as Resident,
    TimeSlicing as TimeSlicing,
)
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
