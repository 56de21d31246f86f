from .baselines import (
    RandomPacking as RandomPacking,
    allox as allox,
    candidates as candidates,
    partitioned as partitioned,
)
from .finish_time import Elapsed as Elapsed, finish_time as finish_time
from .leases import reserve as reserve, usable_seconds as usable_seconds
from .objectives import (
    makespan as makespan,
    max_min as max_min,
    min_jct as min_jct,
    total_throughput as total_throughput,
)
from .problem import (
    Floats as Floats,
    ShareProblem as ShareProblem,
    gandiva_fair as gandiva_fair,
    isolated as isolated,
    proportional as proportional,
)
from .shockwave import (
    Flags as Flags,
    PlanJobs as PlanJobs,
    PlanOptions as PlanOptions,
    arrange as arrange,
    averaged_fair_s as averaged_fair_s,
    backfilled as backfilled,
    epochs_within as epochs_within,
    expected_profile as expected_profile,
    plan as plan,
    remaining_of as remaining_of,
    uniform_share as uniform_share,
)
from .sia import (
    MOST_GPUS as MOST_GPUS,
    Configuration as Configuration,
    bootstrapped as bootstrapped,
    choose as choose,
    configurations as configurations,
    may_grow_to as may_grow_to,
    offers_of as offers_of,
    restart_factor as restart_factor,
    rigid as rigid,
    values as values,
)
from .solver import Program as Program
from .water_filling import Entities as Entities, water_filling as water_filling
