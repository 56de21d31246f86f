from . import integrity as integrity
from .by_group import (
    SIZES as SIZES,
    By as By,
    GroupRow as GroupRow,
    Groups as Groups,
    by_group as by_group,
    changes as changes,
    size_of as size_of,
)
from .compare import (
    DifferenceRow as DifferenceRow,
    Replica as Replica,
    Row as Row,
    comparison as comparison,
    paired_differences as paired_differences,
    reference_of as reference_of,
    row_name as row_name,
    short_keys as short_keys,
    usual_metrics as usual_metrics,
)
from .compare_runs import (
    COMPARED_METRICS as COMPARED_METRICS,
    Pair as Pair,
    TwoRuns as TwoRuns,
    compare_runs as compare_runs,
)
from .definition import SUMMARY as SUMMARY, summary_definition as summary_definition
from .expected_times import Agreement as Agreement, compare_expected as compare_expected
from .fairness import (
    describe as describe,
    exclusive_slowdown as exclusive_slowdown,
    fairness_table as fairness_table,
    mean_contention as mean_contention,
    read_fairness as read_fairness,
    time_on_share as time_on_share,
    write_fairness as write_fairness,
)
from .integrals import Floats as Floats, held_between_rounds as held_between_rounds, integrals as integrals
from .integrity import (
    MANIFEST_FILE as MANIFEST_FILE,
    SUMMARY_FILE as SUMMARY_FILE,
    faults as faults,
    problems_of as problems_of,
    quick_fault as quick_fault,
    seal as seal,
)
from .joining import Part as Part, error_of_cutting as error_of_cutting, join_tables as join_tables
from .league import (
    CPU_S as CPU_S,
    LEAGUE_FILE as LEAGUE_FILE,
    MEASURES as MEASURES,
    ContestPlace as ContestPlace,
    Entry as Entry,
    LeagueTable as LeagueTable,
    joined as joined,
    league_text as league_text,
    read_league_table as read_league_table,
    require_same_league as require_same_league,
)
from .metric import Columns as Columns, LossTable as LossTable
from .metric_names import Reading as Reading, find_metric as find_metric
from .metrics import METRICS as METRICS, metrics_markdown as metrics_markdown, summarise as summarise
from .orders import Ranked as Ranked, ranks as ranks
from .pair_speeds import pair_speeds as pair_speeds
from .power import Power as Power
from .predictions import has_predictions as has_predictions, prediction_errors as prediction_errors
from .quality import (
    LIFE_COLUMNS as LIFE_COLUMNS,
    LOSSES_FILE as LOSSES_FILE,
    QUALITY_COLUMNS as QUALITY_COLUMNS,
    Life as Life,
    lives as lives,
    read_losses as read_losses,
    write_losses as write_losses,
)
from .reader import (
    RUN_FILE as RUN_FILE,
    Cell as Cell,
    Run as Run,
    read_cell as read_cell,
    read_json as read_json,
    read_run as read_run,
    read_table as read_table,
)
from .rows import (
    ALLOCATIONS as ALLOCATIONS,
    JOBS as JOBS,
    OUTAGES as OUTAGES,
    REASONS as REASONS,
    ROUNDS as ROUNDS,
    SCHEMA_VERSION as SCHEMA_VERSION,
    TABLES as TABLES,
    AllocationRecord as AllocationRecord,
    DecisionRecord as DecisionRecord,
    Feature as Feature,
    JobRecord as JobRecord,
    OutageRecord as OutageRecord,
    ReasonRecord as ReasonRecord,
    Table as Table,
    schema_markdown as schema_markdown,
)
from .sequential import (
    Planned as Planned,
    SeedDecision as SeedDecision,
    decide as decide,
    kept as kept,
    looks as looks,
    plan as plan,
    undecided as undecided,
)
from .sheets import CurvePoint as CurvePoint, read_curves as read_curves
from .standings import (
    Beside as Beside,
    Standings as Standings,
    beside_the_bound as beside_the_bound,
    standings as standings,
    who_beats_whom as who_beats_whom,
)
from .statistics import (
    FIRST_LOOK as FIRST_LOOK,
    Difference as Difference,
    Estimate as Estimate,
    estimate as estimate,
    ratio as ratio,
    ratio_of_means as ratio_of_means,
)
from .stays import (
    HELD_COLUMNS as HELD_COLUMNS,
    OCCUPANCY_COLUMNS as OCCUPANCY_COLUMNS,
    OFF as OFF,
    Stay as Stay,
    colour_groups as colour_groups,
    node_sizes as node_sizes,
    outages_told as outages_told,
    stays as stays,
    waiting_by as waiting_by,
)
from .stored import WORKLOAD_FILE as WORKLOAD_FILE
from .story import Passage as Passage, at as at, story as story
from .summary import summarise_folder as summarise_folder
from .trials import TRIALS_FILE as TRIALS_FILE, read_trials as read_trials, write_trials as write_trials
from .verdicts import UNDECIDED as UNDECIDED, Judged as Judged, judge as judge
from .what_was_run import (
    Reproduction as Reproduction,
    physics_of as physics_of,
    what_policies_become as what_policies_become,
    what_was_run as what_was_run,
    who_cannot_differ as who_cannot_differ,
)
from .writer import TableWriter as TableWriter, json_text as json_text, write_json as write_json
