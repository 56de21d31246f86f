from simsched.api import (
    RunResults as RunResults,
    Simulation as Simulation,
    SimulationResults as SimulationResults,
    Terms as Terms,
    drive as drive,
    read_run as read_run,
    read_trace as read_trace,
    results_of as results_of,
    run as run,
    simulate as simulate,
)
from simsched.operators.score import score as score

__version__: str
