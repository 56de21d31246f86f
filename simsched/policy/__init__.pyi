from . import physics as physics, registry as registry, signals as signals
from .contract import (
    INFINITE as INFINITE,
    INPUT_FILE as INPUT_FILE,
    Policy as Policy,
    Quantum as Quantum,
    Traits as Traits,
    Triggers as Triggers,
)
from .decision import (
    CANCEL as CANCEL,
    Action as Action,
    Cancel as Cancel,
    Decision as Decision,
    Decline as Decline,
    Onto as Onto,
    Place as Place,
    Stop as Stop,
    no_decision as no_decision,
)
from .physics import Becomes as Becomes, Wants as Wants
from .registry import POLICIES as POLICIES
from .signals import (
    EARLIER_RUNS as EARLIER_RUNS,
    GOODPUT as GOODPUT,
    LOSSES as LOSSES,
    MEASURED_SPEEDS as MEASURED_SPEEDS,
    PLANS as PLANS,
    RECORDED_DURATION as RECORDED_DURATION,
    REMAINING_WORK as REMAINING_WORK,
    SERVICE_HISTORY as SERVICE_HISTORY,
    STEP_TIMES as STEP_TIMES,
    TRUE_RATES as TRUE_RATES,
    Signal as Signal,
    UndeclaredSignalError as UndeclaredSignalError,
)
from .view import (
    JobView as JobView,
    Reasons as Reasons,
    Urgency as Urgency,
    View as View,
    Why as Why,
    undeclared as undeclared,
)
