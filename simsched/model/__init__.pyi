from .application import (
    NO_BATCH as NO_BATCH,
    Application as Application,
    ApplicationFacts as ApplicationFacts,
    ApplicationSource as ApplicationSource,
    BatchChoice as BatchChoice,
    BatchLimits as BatchLimits,
    GradientStats as GradientStats,
    LossCurve as LossCurve,
    MemoryNeed as MemoryNeed,
    Running as Running,
    StepTime as StepTime,
    facts_of as facts_of,
)
from .batch import (
    batch_for_target as batch_for_target,
    ceil_slack as ceil_slack,
    clip_to_max as clip_to_max,
    micro_batches as micro_batches,
    split_batch as split_batch,
)
from .capacity import Capacity as Capacity, Claim as Claim, Room as Room, beside_of as beside_of, cores_of as cores_of
from .cluster import (
    Cluster as Cluster,
    Level as Level,
    Node as Node,
    NodeGroup as NodeGroup,
    Uplink as Uplink,
    Within as Within,
)
from .fitted import (
    FittedApplication as FittedApplication,
    NoiseCurve as NoiseCurve,
    RelativeSteps as RelativeSteps,
    Training as Training,
    with_types as with_types,
)
from .fixed import FixedDuration as FixedDuration, StagedJob as StagedJob
from .goodput import CandidateBatches as CandidateBatches, GoodputModel as GoodputModel, efficiency as efficiency
from .job import (
    FIXED_DURATION as FIXED_DURATION,
    SPEC_DEFAULTS as SPEC_DEFAULTS,
    JobColumns as JobColumns,
    JobRequest as JobRequest,
    JobSpec as JobSpec,
    JobTruth as JobTruth,
    StageProfile as StageProfile,
    values_of as values_of,
)
from .measured import (
    Bounds as Bounds,
    MeasuredApplication as MeasuredApplication,
    ScalabilityRow as ScalabilityRow,
    StepTable as StepTable,
    TrainingCurve as TrainingCurve,
)
from .outages import (
    PLANNED as PLANNED,
    AttemptPlan as AttemptPlan,
    JobFailures as JobFailures,
    Outage as Outage,
    OutageCause as OutageCause,
    PhillyFailures as PhillyFailures,
)
from .placement import (
    NOTHING as NOTHING,
    Allocation as Allocation,
    Shape as Shape,
    Site as Site,
    Tier as Tier,
    canonical_rotation as canonical_rotation,
    consolidated_shape as consolidated_shape,
    describe as describe,
    gpus_of as gpus_of,
)
from .pool import Placer as Placer, Pool as Pool, lowest_node as lowest_node
from .regimes import (
    BatchRegimes as BatchRegimes,
    CriticalEpochs as CriticalEpochs,
    Steps as Steps,
    Window as Window,
    epoch_of as epoch_of,
    rescaled as rescaled,
)
from .scaled import ScaledApplication as ScaledApplication
from .scaling import ScalingCurve as ScalingCurve
from .shape import (
    COVERED as COVERED,
    GPU_MILLI as GPU_MILLI,
    SLACK as SLACK,
    Amount as Amount,
    NodeShape as NodeShape,
    Pod as Pod,
    Terms as Terms,
    models_of as models_of,
    node_labels as node_labels,
    usual_requests as usual_requests,
)
from .speedup import Speedup as Speedup
from .step_model import (
    PlacementClass as PlacementClass,
    PlacementModel as PlacementModel,
    Placements as Placements,
    SevenParameters as SevenParameters,
    StepModel as StepModel,
    SyncPair as SyncPair,
)
from .tabulated import Setting as Setting, TabulatedJob as TabulatedJob, TabulatedModel as TabulatedModel
from .tenants import TENANTS_PARAMETER as TENANTS_PARAMETER, Tenant as Tenant, circle as circle, excess as excess
from .tensors import TensorModel as TensorModel, TensorModelJob as TensorModelJob
from .throughput import TINY as TINY, ThroughputParams as ThroughputParams
from .topology import (
    Flow as Flow,
    check_nodes as check_nodes,
    consecutive as consecutive,
    shared_steps_s as shared_steps_s,
    site_of as site_of,
    tightest_site as tightest_site,
    with_levels as with_levels,
)
