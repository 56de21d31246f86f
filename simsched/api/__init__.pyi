from .checking import check as check, prepare as prepare
from .jobs import find_trace as find_trace, read_trace as read_trace
from .progress import grid_progress as grid_progress, progress_listener as progress_listener
from .results import RunResults as RunResults, read_run as read_run
from .running import (
    AddedSeeds as AddedSeeds,
    check_ways as check_ways,
    run as run,
    run_to_decision as run_to_decision,
)
from .simulation import (
    Simulation as Simulation,
    SimulationResults as SimulationResults,
    Terms as Terms,
    drive as drive,
    results_of as results_of,
    simulate as simulate,
)
from .stepping import Step as Step, drive_task as drive_task, steps as steps, task_of as task_of
