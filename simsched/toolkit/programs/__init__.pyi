from . import shockwave as shockwave, sia as sia
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
from .solver import Program as Program
from .water_filling import Entities as Entities, water_filling as water_filling
