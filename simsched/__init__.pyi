from simsched.api import RunResults as RunResults
from simsched.api import Simulation as Simulation
from simsched.api import read_run as read_run
from simsched.api import read_trace as read_trace
from simsched.api import run as run
from simsched.api import simulate as simulate

__version__: str
