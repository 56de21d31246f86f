from . import physics as physics, registry as registry, signals as signals
from .contract import INFINITE as INFINITE, INPUT_FILE as INPUT_FILE, Policy as Policy, Triggers as Triggers
from .decision import Decision as Decision, no_decision as no_decision
from .physics import (
    BATCH_RULES as BATCH_RULES,
    BUSY_GPUS as BUSY_GPUS,
    DEADLINES as DEADLINES,
    GPU_PARTS as GPU_PARTS,
    GPU_TYPES as GPU_TYPES,
    GROUPS as GROUPS,
    GUARANTEED_JOBS as GUARANTEED_JOBS,
    JOBS_OF_TENANTS as JOBS_OF_TENANTS,
    JOBS_OF_USERS as JOBS_OF_USERS,
    OPPORTUNISTIC_JOBS as OPPORTUNISTIC_JOBS,
    QUOTAS as QUOTAS,
    SHARED_GPUS as SHARED_GPUS,
    STAGES as STAGES,
    TENSORS as TENSORS,
    TIME_LIMITS as TIME_LIMITS,
    UNPACKED as UNPACKED,
    Becomes as Becomes,
    Physics as Physics,
    Wants as Wants,
)
from .quantum import Quantum as Quantum
from .registry import POLICIES as POLICIES
from .signals import (
    EARLIER_RUNS as EARLIER_RUNS,
    FINISHED_JOBS as FINISHED_JOBS,
    GOODPUT as GOODPUT,
    GPU_BUSY as GPU_BUSY,
    LOSSES as LOSSES,
    MEASURED_SPEEDS as MEASURED_SPEEDS,
    NEXT_ARRIVAL as NEXT_ARRIVAL,
    OFFLINE_PROFILES as OFFLINE_PROFILES,
    PAIR_SPEEDS as PAIR_SPEEDS,
    RECORDED_DURATION as RECORDED_DURATION,
    REMAINING_WORK as REMAINING_WORK,
    SERVICE_HISTORY as SERVICE_HISTORY,
    STAGE_TIMES as STAGE_TIMES,
    STEP_TIMES as STEP_TIMES,
    STEPS as STEPS,
    TRUE_RATES as TRUE_RATES,
    FileSignal as FileSignal,
    JobSignal as JobSignal,
    LossReports as LossReports,
    PairSpeeds as PairSpeeds,
    Signal as Signal,
    Speed as Speed,
    StepCounts as StepCounts,
    UndeclaredSignalError as UndeclaredSignalError,
    ViewSignal as ViewSignal,
)
from .view import JobView as JobView, View as View, undeclared as undeclared
