from .generator import GavelMix as GavelMix, generate_jobs as generate_jobs
from .job import TEMPLATES as TEMPLATES, GavelJob as GavelJob
