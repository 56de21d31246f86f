from . import integrity as integrity
from .analyses import (
    SIZES as SIZES,
    By as By,
    GroupRow as GroupRow,
    Groups as Groups,
    by_group as by_group,
    changes as changes,
    has_predictions as has_predictions,
    pair_speeds as pair_speeds,
    prediction_errors as prediction_errors,
    size_of as size_of,
)
from .compare import (
    COMPARED_METRICS as COMPARED_METRICS,
    DifferenceRow as DifferenceRow,
    Pair as Pair,
    Replica as Replica,
    Row as Row,
    SeedDecision as SeedDecision,
    TwoRuns as TwoRuns,
    compare_runs as compare_runs,
    comparison as comparison,
    decide as decide,
    kept as kept,
    looks as looks,
    paired_differences as paired_differences,
    plan as plan,
    reference_of as reference_of,
    row_name as row_name,
    short_keys as short_keys,
    undecided as undecided,
    usual_metrics as usual_metrics,
)
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
from .integrity import (
    MANIFEST_FILE as MANIFEST_FILE,
    SUMMARY_FILE as SUMMARY_FILE,
    faults as faults,
    problems_of as problems_of,
    quick_fault as quick_fault,
    seal as seal,
)
from .league import (
    CPU_S as CPU_S,
    LEAGUE_FILE as LEAGUE_FILE,
    MEASURES as MEASURES,
    Beside as Beside,
    ContestPlace as ContestPlace,
    Entry as Entry,
    LeagueTable as LeagueTable,
    Standings as Standings,
    beside_the_bound as beside_the_bound,
    joined as joined,
    league_text as league_text,
    read_league_table as read_league_table,
    require_same_league as require_same_league,
    standings as standings,
    who_beats_whom as who_beats_whom,
)
from .metric import (
    Columns as Columns,
    Floats as Floats,
    LossTable as LossTable,
    Power as Power,
    held_between_rounds as held_between_rounds,
    integrals as integrals,
)
from .metrics import (
    METRICS as METRICS,
    Reading as Reading,
    find_metric as find_metric,
    metrics_markdown as metrics_markdown,
    summarise as summarise,
)
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
    Records as Records,
    schema_markdown as schema_markdown,
)
from .sheets import (
    TRIALS_FILE as TRIALS_FILE,
    CurvePoint as CurvePoint,
    read_curves as read_curves,
    read_trials as read_trials,
    write_trials as write_trials,
)
from .statistics import (
    FIRST_LOOK as FIRST_LOOK,
    Estimate as Estimate,
    estimate as estimate,
    ratio as ratio,
)
from .stays import (
    HELD_COLUMNS as HELD_COLUMNS,
    OCCUPANCY_COLUMNS as OCCUPANCY_COLUMNS,
    OFF as OFF,
    Stay as Stay,
    at as at,
    colour_groups as colour_groups,
    node_sizes as node_sizes,
    outages_told as outages_told,
    stays as stays,
    story as story,
    waiting_by as waiting_by,
)
from .stored import SUMMARY as SUMMARY, WORKLOAD_FILE as WORKLOAD_FILE, summary_definition as summary_definition
from .summary import summarise_folder as summarise_folder
from .what_was_run import (
    Reproduction as Reproduction,
    physics_of as physics_of,
    what_policies_become as what_policies_become,
    what_was_run as what_was_run,
    who_cannot_differ as who_cannot_differ,
)
from .writer import (
    Part as Part,
    TableWriter as TableWriter,
    error_of_cutting as error_of_cutting,
    join_tables as join_tables,
    json_text as json_text,
    write_json as write_json,
)
