from .exports import batsim_jobs as batsim_jobs, write_perfetto as write_perfetto
from .league import (
    share_text as share_text,
    standings_table as standings_table,
    unable_table as unable_table,
)
from .table import TextTable as TextTable
from .tables import (
    comparison_table as comparison_table,
    difference_table as difference_table,
    estimate_text as estimate_text,
    marks_legend as marks_legend,
    to_csv as to_csv,
)
from .units import shown_unit as shown_unit
