from .exports import batsim_jobs as batsim_jobs, write_perfetto as write_perfetto
from .filled_page import (
    FilledPage as FilledPage,
    filled as filled,
    pages_in as pages_in,
    ratios_table as ratios_table,
    runs_on as runs_on,
)
from .league import (
    classes as classes,
    places_of as places_of,
    standings_table as standings_table,
    unable_table as unable_table,
)
from .tables import (
    TextTable as TextTable,
    comparison_table as comparison_table,
    difference_table as difference_table,
    estimate_text as estimate_text,
    marks_legend as marks_legend,
    pivoted as pivoted,
    to_csv as to_csv,
    to_latex as to_latex,
    to_markdown as to_markdown,
)
from .units import shown_unit as shown_unit
