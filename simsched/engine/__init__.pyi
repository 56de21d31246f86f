from .admission import LEAVE_OUT as LEAVE_OUT, check_jobs as check_jobs
from .errors import EngineError as EngineError
from .options import (
    LEAST_TICK_S as LEAST_TICK_S,
    PROCESSES as PROCESSES,
    EngineOptions as EngineOptions,
    FailureOptions as FailureOptions,
    Process as Process,
    Terms as Terms,
    stream as stream,
)
from .processes import ProcessError as ProcessError, Site as Site
from .providers import (
    Granted as Granted,
    LossReporter as LossReporter,
    TrueRemainingWork as TrueRemainingWork,
    true_rates as true_rates,
    views_at_submission as views_at_submission,
)
from .records import (
    AllocationRecord as AllocationRecord,
    DecisionRecord as DecisionRecord,
    JobRecord as JobRecord,
    JobRecorder as JobRecorder,
    MemoryRecorder as MemoryRecorder,
    OutageRecord as OutageRecord,
    ReasonRecord as ReasonRecord,
    Recorder as Recorder,
    features_of as features_of,
)
from .simulation import Simulation as Simulation, simulate as simulate

SEMANTICS: int
