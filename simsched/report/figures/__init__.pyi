from .draw import FIGURES as FIGURES, draw_figure as draw_figure, draw_run as draw_run, figure_names as figure_names
from .model_sheet import efficiency_sheet as efficiency_sheet, throughput_sheet as throughput_sheet
from .models import (
    efficiency_figure as efficiency_figure,
    plan_parts as plan_parts,
    throughput_figure as throughput_figure,
    types_figure as types_figure,
)
from .occupancy import occupancy as occupancy
from .operators import (
    allocation_curves as allocation_curves,
    capacity_curve as capacity_curve,
    wait_changes as wait_changes,
    wait_comparison as wait_comparison,
)
from .pair_map import pairs_map as pairs_map
from .saving import save as save
from .style import Drawn as Drawn, Figure as Figure
from .timeline import job_timeline as job_timeline
from .trace_summary import trace_picture as trace_picture
