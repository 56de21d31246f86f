from .bound import (
    Bound as Bound,
    Distance as Distance,
    bounds_of as bounds_of,
    distances as distances,
    grid_of as grid_of,
)
from .calibrate import WaitRow as WaitRow, calibrate as calibrate
from .capacity import Answer as Answer, Target as Target, find_capacity as find_capacity
from .log_input import (
    cluster_groups as cluster_groups,
    inferred_groups as inferred_groups,
    largest_type as largest_type,
    node_names as node_names,
    read_operator_log as read_operator_log,
)
from .packing import Packed as Packed, pack as pack, read_published as read_published
from .replays import ReplayPlan as ReplayPlan
from .what_if import ALL_KINDS as ALL_KINDS, Effect as Effect, what_if as what_if
