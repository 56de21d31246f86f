"""The workloads of Gavel (OSDI'20): its job types, its seeded generator, its trace format and its table of rates.

Turning these jobs into an experiment's workload does not belong here.
"""

from simsched.workload.gavel.generator import GavelMix, generate_jobs
from simsched.workload.gavel.job import GavelJob
from simsched.workload.gavel.rates import GavelRates, read_rates
from simsched.workload.gavel.trace_file import read_trace, write_trace

__all__ = ["GavelJob", "GavelMix", "GavelRates", "generate_jobs", "read_rates", "read_trace", "write_trace"]
