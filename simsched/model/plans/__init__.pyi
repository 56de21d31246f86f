from .hardware import (
    EVERYTHING as EVERYTHING,
    Hardware as Hardware,
    MeasuredLayers as MeasuredLayers,
    PlanSpace as PlanSpace,
    of_a_layer as of_a_layer,
)
from .job import PlannedJob as PlannedJob
from .memory_parts import MemoryParts as MemoryParts, legal as legal, memory as memory
from .model import PlannedModel as PlannedModel, Ranked as Ranked, best_plan as best_plan, plans as plans
from .plan import (
    ModelShape as ModelShape,
    Plan as Plan,
    PlanTable as PlanTable,
    Recomputation as Recomputation,
    morphling_plan as morphling_plan,
)
from .step_parts import StepParts as StepParts, step_time as step_time, step_times as step_times
from .tabled import LargeModel as LargeModel, PlanRows as PlanRows, TabledModel as TabledModel
