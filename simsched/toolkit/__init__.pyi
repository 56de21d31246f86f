from .auction import (
    bid_of as bid_of,
    finish_time_ratio as finish_time_ratio,
    least_fair as least_fair,
    partial_allocation as partial_allocation,
)
from .consolidated import place_consolidated as place_consolidated
from .deadlines import (
    Counts as Counts,
    DeadlineJob as DeadlineJob,
    in_time as in_time,
    keep_promises as keep_promises,
    plan_all as plan_all,
    plan_beside as plan_beside,
    scale_up as scale_up,
    share_out as share_out,
    sizes as sizes,
)
from .elastic import (
    fixed_batch as fixed_batch,
    place_counts as place_counts,
    refuse_unknown_counts as refuse_unknown_counts,
    refuse_without_losses as refuse_without_losses,
    required_limits as required_limits,
    share_evenly as share_evenly,
    tell_allocations as tell_allocations,
    tell_counts as tell_counts,
    usable_gpus as usable_gpus,
)
from .estimates import DurationHistory as DurationHistory, LearnedDurations as LearnedDurations
from .features import (
    APPLICATION as APPLICATION,
    FEATURES as FEATURES,
    Feature as Feature,
    Features as Features,
    Score as Score,
)
from .gang import available_by_type as available_by_type, available_gpus as available_gpus, run_in_order as run_in_order
from .gittins import (
    IndexTable as IndexTable,
    ServiceDistribution as ServiceDistribution,
    ServiceHistory as ServiceHistory,
)
from .levels import Levels as Levels, start_order as start_order
from .loss_curves import (
    FEWEST as FEWEST,
    Fit as Fit,
    allocate_by_gain as allocate_by_gain,
    fit_convergence as fit_convergence,
    fit_slaq as fit_slaq,
    normalised_gain as normalised_gain,
)
from .node_demand import NodeDemand as NodeDemand, nodes_to_wake as nodes_to_wake
from .placers import (
    ANY as ANY,
    BEST_FIT as BEST_FIT,
    CONSOLIDATED as CONSOLIDATED,
    FEWEST_DOMAINS as FEWEST_DOMAINS,
    MOST_FREE as MOST_FREE,
    PLACERS as PLACERS,
    Placer as Placer,
    PlacerName as PlacerName,
    most_free_among as most_free_among,
)
from .plan_curves import PlanCurves as PlanCurves
from .priority import Key as Key, PriorityScheduler as PriorityScheduler
from .recording import Recording as Recording, play as play
from .skew import PlacementName as PlacementName, SkewPlacement as SkewPlacement
from .speed_model import (
    DAMPING as DAMPING,
    SpeedModels as SpeedModels,
    SpeedSample as SpeedSample,
    allocate_by_time as allocate_by_time,
    samples_of as samples_of,
)
from .type_pools import (
    GpuMemory as GpuMemory,
    NarrowedView as NarrowedView,
    TypePool as TypePool,
    gpu_types as gpu_types,
    type_pools as type_pools,
)
