from . import groups as groups
from .groups import (
    Rules as Rules,
    efficiency as efficiency,
    merge_by_matching as merge_by_matching,
    placement_order as placement_order,
    take as take,
)
from .matching import exact_matching as exact_matching
