from .names import (
    NODE_ORDERS as NODE_ORDERS,
    PUBLISHED_NAMES as PUBLISHED_NAMES,
    RULES as RULES,
    NodeOrder as NodeOrder,
)
from .packer import Filling as Filling, fill as fill, fit_nowhere as fit_nowhere
