from simsched.api import (
    RunResults as RunResults,
    Simulation as Simulation,
    read_run as read_run,
    read_trace as read_trace,
    run as run,
    simulate as simulate,
)

__version__: str
