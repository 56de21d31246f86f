from . import (
    analyses as analyses,
    compare as compare,
    expected_times as expected_times,
    fairness as fairness,
    integrity as integrity,
    league as league,
    metric as metric,
    metrics as metrics,
    quality as quality,
    rows as rows,
    sheets as sheets,
    statistics as statistics,
    stays as stays,
    stored as stored,
    writer as writer,
)
from .compare import Row as Row, comparison as comparison, paired_differences as paired_differences
from .metric import Columns as Columns
from .metrics import METRICS as METRICS, find_metric as find_metric, summarise as summarise
from .reader import (
    RUN_FILE as RUN_FILE,
    Cell as Cell,
    Run as Run,
    read_cell as read_cell,
    read_json as read_json,
    read_run as read_run,
    read_table as read_table,
)
from .rows import TABLES as TABLES, Feature as Feature
from .statistics import Estimate as Estimate, estimate as estimate
from .summary import summarise_folder as summarise_folder
from .what_was_run import (
    Reproduction as Reproduction,
    physics_of as physics_of,
    what_policies_become as what_policies_become,
    what_was_run as what_was_run,
    who_cannot_differ as who_cannot_differ,
)
from .writer import TableWriter as TableWriter
