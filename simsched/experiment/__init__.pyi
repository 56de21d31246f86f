from . import (
    checks as checks,
    cluster as cluster,
    failures as failures,
    league as league,
    physics as physics,
    published as published,
)
from .fairness import run_with_fairness as run_with_fairness
from .grid import Grid as Grid, GridCell as GridCell, look_into as look_into
from .inputs import CellInputs as CellInputs
from .policy_params import (
    QUESTIONS as QUESTIONS,
    PolicyCard as PolicyCard,
    make_policy as make_policy,
    policy_card as policy_card,
    walled_maker as walled_maker,
)
from .results_name import find_experiment as find_experiment, shipped_experiments as shipped_experiments
from .spec import ExperimentSpec as ExperimentSpec, SharingSpec as SharingSpec, json_schema as json_schema
from .stored_jobs import HeldJobs as HeldJobs
from .task import Task as Task, digest_of as digest_of, groups_of as groups_of, key_of as key_of
from .validation import (
    check_experiment as check_experiment,
    check_workload as check_workload,
    read_experiment as read_experiment,
)
