from .estimates import with_estimates as with_estimates
from .generator import (
    STRETCH_DAYS as STRETCH_DAYS,
    GeneratorOptions as GeneratorOptions,
    generate_from_seed as generate_from_seed,
)
from .outages import (
    merged as merged,
    read_fault_trace as read_fault_trace,
    read_outages as read_outages,
    write_outages as write_outages,
)
from .philly_statistics import (
    LEVELS as LEVELS,
    BatchSizes as BatchSizes,
    PhillyStatistics as PhillyStatistics,
)
from .places import located as located
from .pods import read_nodes as read_nodes, read_pods as read_pods
from .recipes.recipe import HOUR_S as HOUR_S, size_class_of as size_class_of
from .shapes import SHAPE_COLUMNS as SHAPE_COLUMNS, kinds_of as kinds_of, shapes_of as shapes_of
from .source import (
    GENERATED as GENERATED,
    NAMED_SOURCES as NAMED_SOURCES,
    RECIPES as RECIPES,
    Drawn as Drawn,
    GeneratedTrace as GeneratedTrace,
    WorkloadOptions as WorkloadOptions,
    drawn_in_parts as drawn_in_parts,
    drawn_workload as drawn_workload,
    extreme_jobs as extreme_jobs,
    make_workload as make_workload,
)
from .summary import (
    demand_on as demand_on,
    describe as describe,
    trace_statistics as trace_statistics,
)
from .trace import MOST_SECONDS as MOST_SECONDS, Trace as Trace, in_gpus as in_gpus, make_trace as make_trace
from .write import (
    swf_jobs as swf_jobs,
    write_swf as write_swf,
    write_trace_csv as write_trace_csv,
    write_workload_csv as write_workload_csv,
)
