from .builders import Applications as Applications
from .check_policy import Failure as Failure, check_policy as check_policy
