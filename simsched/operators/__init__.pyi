from .bound import (
    Bound as Bound,
    Distance as Distance,
    bounds_of as bounds_of,
    distances as distances,
    grid_of as grid_of,
    problems_of as problems_of,
)
from .calibrate import Calibration as Calibration, calibrate as calibrate
from .capacity import Answer as Answer, Target as Target, find_capacity as find_capacity
from .changes import Changed as Changed, group_names as group_names
from .gate import GateRow as GateRow, Interval as Interval, Verdict as Verdict
from .league import Began as Began, play as play
from .live import (
    Backtest as Backtest,
    Queue as Queue,
    Start as Start,
    backtest as backtest,
    forecast_starts as forecast_starts,
    read_queue as read_queue,
)
from .log_input import (
    cluster_groups as cluster_groups,
    fitted_to as fitted_to,
    groups_of as groups_of,
    inferred_groups as inferred_groups,
    largest_type as largest_type,
    policy_settings as policy_settings,
    read_operator_log as read_operator_log,
    slurm_nodes as slurm_nodes,
    with_partitions as with_partitions,
)
from .manifests import (
    ManifestOptions as ManifestOptions,
    is_change_of_objects as is_change_of_objects,
    manifest_plan as manifest_plan,
)
from .packing import Packed as Packed, pack as pack, read_published as read_published
from .replays import ReplayPlan as ReplayPlan, changed_plan as changed_plan, write_replay as write_replay
from .training import (
    PARTS as PARTS,
    PlanAnswer as PlanAnswer,
    Question as Question,
    closest_plan as closest_plan,
    straddling_site as straddling_site,
    tight_site as tight_site,
)
from .what_if import (
    ALL_KINDS as ALL_KINDS,
    Change as Change,
    Effect as Effect,
    Forecast as Forecast,
    what_if as what_if,
)
