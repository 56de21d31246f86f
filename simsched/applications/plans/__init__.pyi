from .hardware_file import (
    FitErrors as FitErrors,
    HardwareDocument as HardwareDocument,
    extent as extent,
    find_hardware as find_hardware,
    hardware_text as hardware_text,
    shipped_hardware as shipped_hardware,
)
from .measured_steps import MeasuredStep as MeasuredStep, MeasuredSteps as MeasuredSteps, read_steps as read_steps
from .model_file import (
    MODEL_FORMAT as MODEL_FORMAT,
    ModelDocument as ModelDocument,
    plan_tables as plan_tables,
    read_model as read_model,
    read_plan_table as read_plan_table,
    read_plan_tables as read_plan_tables,
    shipped_llms as shipped_llms,
)
