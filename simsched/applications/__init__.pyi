from .catalogue import (
    ApplicationCatalogue as ApplicationCatalogue,
    ApplicationsOptions as ApplicationsOptions,
    catalogue as catalogue,
    read_pair_table as read_pair_table,
)
from .file_format import template as template
from .gpu_types import gpu_types as gpu_types, with_speeds as with_speeds
from .tuned_requests import initial_batch_sizes as initial_batch_sizes, tuned_configurations as tuned_configurations
