"""The rules and the orders of nodes by name; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

#: The rules, and what the results published with FGD call them.
PUBLISHED_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "random": "Random",
        "dot-product": "DotProd",
        "gpu-clustering": "GpuClustering",
        "gpu-packing": "GpuPacking",
        "best-fit": "BestFit",
        "fgd": "FGD",
    }
)
RULES: Final = tuple(PUBLISHED_NAMES)
#: Their numbers in compiled code.
RANDOM, DOT_PRODUCT, GPU_CLUSTERING, GPU_PACKING, BEST_FIT, FGD = range(6)

#: The order whose first node gets a tie: drawn once per run, or by name.
NodeOrder = Literal["shuffled", "names"]
NODE_ORDERS: tuple[NodeOrder, ...] = get_args(NodeOrder)
