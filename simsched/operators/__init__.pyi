from . import (
    admit as admit,
    anonymise as anonymise,
    bound as bound,
    dump as dump,
    live as live,
    log_input as log_input,
    manifests as manifests,
    sample as sample,
    score as score,
    training as training,
)
from .bound import (
    Bound as Bound,
    Distance as Distance,
    bounds_of as bounds_of,
    distances as distances,
    grid_of as grid_of,
)
from .calibrate import Calibration as Calibration, calibrate as calibrate
from .capacity import Answer as Answer, Target as Target, find_capacity as find_capacity
from .changes import group_names as group_names
from .gate import GateRow as GateRow, Interval as Interval, Verdict as Verdict
from .league import play as play
from .log_input import nodes_of as nodes_of
from .manifests import (
    ManifestOptions as ManifestOptions,
    is_change_of_objects as is_change_of_objects,
    manifest_plan as manifest_plan,
)
from .packing import Packed as Packed, pack as pack, read_published as read_published
from .replays import ReplayPlan as ReplayPlan, changed_plan as changed_plan, write_replay as write_replay
from .what_if import (
    ALL_KINDS as ALL_KINDS,
    Change as Change,
    Effect as Effect,
    Forecast as Forecast,
    what_if as what_if,
)
