from .as_is import specs_of as specs_of
from .pollux import (
    MIN_DURATION_S as MIN_DURATION_S,
    PUBLISHED_JOBS as PUBLISHED_JOBS,
    PolluxRecipe as PolluxRecipe,
    draw_workload as draw_workload,
    eligible as eligible,
)
from .recipe import Configurations as Configurations
