from .generator import GavelMix as GavelMix, generate_jobs as generate_jobs
from .job import TEMPLATES as TEMPLATES, GavelJob as GavelJob
from .rates import GavelRates as GavelRates, read_rates as read_rates
from .trace_file import read_trace as read_trace, write_trace as write_trace
