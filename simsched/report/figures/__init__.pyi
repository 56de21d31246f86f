import collections.abc

from .draw import draw_figure as draw_figure, draw_run as draw_run, figure_names as figure_names
from .job_lives import job_timeline as job_timeline
from .models import (
    efficiency_figure as efficiency_figure,
    efficiency_sheet as efficiency_sheet,
    plan_parts as plan_parts,
    throughput_figure as throughput_figure,
    throughput_sheet as throughput_sheet,
    types_figure as types_figure,
)
from .occupancy import occupancy as occupancy
from .operators import (
    allocation_curves as allocation_curves,
    capacity_curve as capacity_curve,
    trace_picture as trace_picture,
    wait_changes as wait_changes,
    wait_comparison as wait_comparison,
)
from .output import save as save
from .purposes import pairs_map as pairs_map
from .style import Drawn as Drawn, Figure as Figure

FIGURES: collections.abc.Mapping[str, str]
