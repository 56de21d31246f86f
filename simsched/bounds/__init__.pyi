from .certificate import Certificate as Certificate
from .check import digest_of as digest_of, problem_of as problem_of
from .cost import least_cost as least_cost
from .jobs import RelaxedJobs as RelaxedJobs, Speeds as Speeds, relaxed_jobs as relaxed_jobs
from .solve import lower_bound as lower_bound
