from .builders import Applications as Applications
from .check_agent import check_agent as check_agent
from .check_policy import Failure as Failure, check_policy as check_policy
from .check_process import check_process as check_process
