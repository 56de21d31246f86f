from .catalogue import (
    ApplicationCatalogue as ApplicationCatalogue,
    ApplicationsOptions as ApplicationsOptions,
    catalogue as catalogue,
    read_pair_table as read_pair_table,
)
from .duration_by_type import with_speeds as with_speeds
from .file_format import template as template
from .gpu_types import gpu_types as gpu_types
from .tuned_requests import initial_batch_sizes as initial_batch_sizes, tuned_configurations as tuned_configurations
