from .application_fit import (
    KINDS as KINDS,
    Truth as Truth,
    compare_folder as compare_folder,
    fit_folder as fit_folder,
    write_documents as write_documents,
)
from .plan_fit import (
    ModelErrors as ModelErrors,
    PlanFit as PlanFit,
    errors_by_model as errors_by_model,
    fit_profile as fit_profile,
    predict as predict,
)
