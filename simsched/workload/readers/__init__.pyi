from . import slurm as slurm
from .any_format import goes_by_row as goes_by_row, read_trace as read_trace, trace_in_parts as trace_in_parts
from .format import (
    Format as Format,
    Head as Head,
    head_of as head_of,
    is_workload as is_workload,
    workload_files as workload_files,
)
from .kubernetes import Stated as Stated, jobs_of as jobs_of
from .log import HARMLESS as HARMLESS, ClusterLog as ClusterLog, Limits as Limits, joined as joined
from .plain import read_workload as read_workload
from .sheet import open_sheet as open_sheet
from .slurm import read_sacct as read_sacct
from .slurm_nodes import (
    SlurmCluster as SlurmCluster,
    SlurmNode as SlurmNode,
    describes_nodes as describes_nodes,
    read_nodes as read_nodes,
)
from .slurm_settings import read_settings as read_settings
from .squeue import SlurmQueue as SlurmQueue, read_squeue as read_squeue
from .tables import is_log as is_log, read_log as read_log
