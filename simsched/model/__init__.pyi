from . import (
    application as application,
    batch as batch,
    capacity as capacity,
    cluster as cluster,
    fitted as fitted,
    goodput as goodput,
    job as job,
    measured as measured,
    outages as outages,
    placement as placement,
    pool as pool,
    regimes as regimes,
    step_model as step_model,
    tabulated as tabulated,
    tensors as tensors,
    throughput as throughput,
    topology as topology,
)
from .application import (
    Application as Application,
    ApplicationFacts as ApplicationFacts,
    ApplicationSource as ApplicationSource,
    BatchChoice as BatchChoice,
    BatchLimits as BatchLimits,
)
from .batch import batch_for_target as batch_for_target
from .capacity import Capacity as Capacity
from .cluster import Cluster as Cluster, Node as Node, NodeGroup as NodeGroup
from .job import FIXED_DURATION as FIXED_DURATION, JobRequest as JobRequest, JobSpec as JobSpec
from .placement import (
    Allocation as Allocation,
    Amount as Amount,
    NodeShape as NodeShape,
    Site as Site,
    gpus_of as gpus_of,
)
