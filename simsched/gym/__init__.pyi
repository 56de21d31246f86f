from .environment import RULES as RULES, JobRecorder as JobRecorder, SchedulingEnv as SchedulingEnv
from .evolution import WEIGHED as WEIGHED, Evolution as Evolution, evolve as evolve, policy_text as policy_text
from .network import (
    Network as Network,
    NetworkPolicy as NetworkPolicy,
    network_text as network_text,
    outputs as outputs,
    signals_of as signals_of,
)
from .observation import (
    CLUSTER_FEATURES as CLUSTER_FEATURES,
    QUEUE_FEATURES as QUEUE_FEATURES,
    REWARDS as REWARDS,
    Moment as Moment,
)
