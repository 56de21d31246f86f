from .regime import Accordion as Accordion, NoiseSchedule as NoiseSchedule
from .rules import NOTHING_MEASURED as NOTHING_MEASURED, BatchRule as BatchRule, BatchState as BatchState
