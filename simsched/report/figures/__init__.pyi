from .capacity import capacity_curve as capacity_curve
from .draw import FIGURES as FIGURES, draw_figure as draw_figure, draw_run as draw_run, figure_names as figure_names
from .effects import wait_changes as wait_changes
from .model_sheet import efficiency_sheet as efficiency_sheet, throughput_sheet as throughput_sheet
from .models import (
    efficiency_figure as efficiency_figure,
    throughput_figure as throughput_figure,
    types_figure as types_figure,
)
from .packing import allocation_curves as allocation_curves
from .pairs import pairs_map as pairs_map
from .style import Drawn as Drawn, Figure as Figure, save as save
from .timeline import job_timeline as job_timeline
from .trace_summary import trace_picture as trace_picture
from .waits import wait_comparison as wait_comparison
