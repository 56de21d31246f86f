from . import (
    auction as auction,
    consolidated as consolidated,
    deadlines as deadlines,
    elastic as elastic,
    estimates as estimates,
    features as features,
    gang as gang,
    gittins as gittins,
    levels as levels,
    loss_curves as loss_curves,
    node_demand as node_demand,
    placers as placers,
    plan_curves as plan_curves,
    priority as priority,
    recording as recording,
    skew as skew,
    speed_model as speed_model,
)
from .consolidated import place_consolidated as place_consolidated
from .elastic import usable_gpus as usable_gpus
from .features import Score as Score
from .gang import available_by_type as available_by_type, available_gpus as available_gpus, run_in_order as run_in_order
from .placers import PLACERS as PLACERS, PlacerName as PlacerName
from .plan_curves import PlanCurves as PlanCurves
from .priority import Key as Key, PriorityScheduler as PriorityScheduler
from .type_pools import (
    GpuMemory as GpuMemory,
    NarrowedView as NarrowedView,
    TypePool as TypePool,
    gpu_types as gpu_types,
    type_pools as type_pools,
)
