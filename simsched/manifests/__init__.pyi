from . import admissions as admissions
from .fields import Account as Account, Fields as Fields, chosen as chosen, refuse_idle as refuse_idle
from .nodes import (
    HOSTNAME as HOSTNAME,
    NodeFacts as NodeFacts,
    in_service as in_service,
    is_gpu as is_gpu,
    levels_of as levels_of,
    node_groups as node_groups,
    read_nodes as read_nodes,
)
from .objects import (
    Object as Object,
    is_manifest as is_manifest,
    merged as merged,
    objects_text as objects_text,
    path_text as path_text,
    raise_any as raise_any,
    read_objects as read_objects,
)
from .pods import (
    Expression as Expression,
    PodTemplate as PodTemplate,
    Taint as Taint,
    Toleration as Toleration,
    expressions as expressions,
    label_selector as label_selector,
    taints as taints,
    tolerations as tolerations,
)
from .quantities import quantity as quantity, written as written
from .workloads import (
    KAI_QUEUE as KAI_QUEUE,
    MIN_PARALLELISM as MIN_PARALLELISM,
    POD_SET_GROUP as POD_SET_GROUP,
    READY as READY,
    WORKLOAD_KINDS as WORKLOAD_KINDS,
    PodSet as PodSet,
    Workload as Workload,
    changes_of_pods as changes_of_pods,
    names_queue as names_queue,
    read_workloads as read_workloads,
)
