from . import shockwave as shockwave, sia as sia
from .baselines import (
    RandomPacking as RandomPacking,
    allox as allox,
    candidates as candidates,
    partitioned as partitioned,
)
from .leases import reserve as reserve, usable_seconds as usable_seconds
from .objectives import (
    makespan as makespan,
    max_min as max_min,
    min_jct as min_jct,
    total_throughput as total_throughput,
)
from .problem import (
    Floats as Floats,
    Program as Program,
    ShareProblem as ShareProblem,
    gandiva_fair as gandiva_fair,
    isolated as isolated,
    proportional as proportional,
)
from .water_filling import (
    Elapsed as Elapsed,
    Entities as Entities,
    finish_time as finish_time,
    water_filling as water_filling,
)
