from .about import groups_of as groups_of
from .checks import stage_problems as stage_problems
from .cluster import ClusterSpec as ClusterSpec, GroupSpec as GroupSpec
from .failures import FailuresSpec as FailuresSpec, failure_options as failure_options
from .fairness import run_with_fairness as run_with_fairness
from .grid import Grid as Grid, GridCell as GridCell, look_into as look_into, make_grid as make_grid
from .inputs import CellInputs as CellInputs
from .league import (
    Contest as Contest,
    LeagueSpec as LeagueSpec,
    code_now as code_now,
    code_of as code_of,
    contests as contests,
    digest_of_league as digest_of_league,
    entrants as entrants,
    read_league as read_league,
    reason_of as reason_of,
    shipped_results as shipped_results,
)
from .physics import colocation_of as colocation_of, interleaves as interleaves
from .policy_cards import (
    QUESTIONS as QUESTIONS,
    PolicyCard as PolicyCard,
    policy_card as policy_card,
    signals_read as signals_read,
)
from .policy_params import full_params as full_params, make_policy as make_policy
from .promises import with_deadlines as with_deadlines
from .published import (
    PublishedData as PublishedData,
    PublishedFile as PublishedFile,
    find_published as find_published,
    published_data as published_data,
)
from .results_name import results_name as results_name
from .sharing import SharingSpec as SharingSpec
from .shipped import find_experiment as find_experiment, shipped_experiments as shipped_experiments
from .spec import ExperimentSpec as ExperimentSpec, json_schema as json_schema
from .task import Task as Task, key_of as key_of
from .validation import (
    check_experiment as check_experiment,
    check_workload as check_workload,
    foreign_code as foreign_code,
    read_experiment as read_experiment,
)
