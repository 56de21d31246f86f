from .admission import LEAVE_OUT as LEAVE_OUT, check_jobs as check_jobs
from .errors import EngineError as EngineError
from .failure_options import FailureOptions as FailureOptions
from .losses import LossReporter as LossReporter
from .options import LEAST_TICK_S as LEAST_TICK_S, EngineOptions as EngineOptions
from .providers import gpu_busy as gpu_busy, stage_times as stage_times, views_at_submission as views_at_submission
from .records import (
    AllocationRecord as AllocationRecord,
    DecisionRecord as DecisionRecord,
    JobRecord as JobRecord,
    MemoryRecorder as MemoryRecorder,
    OutageRecord as OutageRecord,
)
from .remaining import TrueRemainingWork as TrueRemainingWork, true_rates as true_rates
from .sharing import TruePairs as TruePairs
from .simulation import simulate as simulate
from .streams import stream as stream

SEMANTICS: int
