"""Rules that choose a node for a pod, and the GPUs on it.

A rule gives each node that fits a pod a truncated integer score; the best wins, ties by the order of the nodes. The pod
gets the fitting GPUs with the least room; for a fraction of a GPU, `fgd` takes the best score and `random` any. Source:
the published simulator of Weng et al., "Beware of Fragmentation" (USENIX ATC'23), with its baselines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simsched.jit import leaf
from simsched.model import Node
from simsched.model.placement import GPU_MILLI, Pod
from simsched.toolkit.packing.cluster import (
    Fragments,
    Free,
    Ints,
    Requests,
    Target,
    free_of_gpus,
    least_free,
    request_of,
    score_by_growth,
    whole_gpus,
)
from simsched.toolkit.packing.names import BEST_FIT, DOT_PRODUCT, FGD, GPU_CLUSTERING, GPU_PACKING, RANDOM

#: The cores and GPUs of the largest nodes of the published cluster, by which scores normalise requests.
CPU_SCALE_MILLI, GPU_SCALE_MILLI = 128_000, 8_000


class Books(NamedTuple):
    """All that rules read; `used` has room for the GPUs of the largest node."""

    free: Free
    requests: Requests
    target: Target
    fragments: Fragments
    used: Ints

    @classmethod
    def of(cls, nodes: Sequence[Node], pods: Sequence[Pod], target: Sequence[Pod]) -> Books:
        """Take empty nodes, the distinct requests of pods, and the expected pods."""
        models = sorted({node.gpu_type for node in nodes})
        requests = Requests.of(list(dict.fromkeys(map(request_of, pods))), models)
        free = Free.of(nodes, models, int(requests.group.max(initial=0)) + 1)
        usual = Target.of(target, models)
        used = np.zeros(free.room.gpu_milli.shape[1], dtype=np.int64)
        return cls(free, requests, usual, Fragments.of(free, usual), used)


@leaf
def score(rule: int, books: Books, node: int, request: int) -> int:
    """Return the score of a node on which a request fits."""
    free, requests, used = books.free, books.requests, books.used
    if rule == DOT_PRODUCT:
        return _dot_product(free, node, requests, request)
    if rule == BEST_FIT:
        return _best_fit(free, node, requests, request)
    if rule == GPU_CLUSTERING:
        return _gpu_clustering(free, node, requests, request)
    if rule == GPU_PACKING:
        return _gpu_packing(free, node, requests, request, used)
    if rule == FGD:
        return score_by_growth(free, node, requests, request, used, books.target, books.fragments)
    return 0


@leaf
def choose_gpus(rule: int, books: Books, node: int, request: int, draw: float) -> None:
    """Put the GPUs that a request gets on a fitting node into `used`; `draw`, in [0, 1), is for `random`."""
    free, requests, used = books.free, books.requests, books.used
    gpus, milli = requests.num_gpus[request], requests.gpu_milli[request]
    if rule == FGD:
        score_by_growth(free, node, requests, request, used, books.target, books.fragments)
    elif rule == RANDOM and gpus == 1 and milli < GPU_MILLI:
        fitting = 0
        for gpu in range(free.room.gpus[node]):
            fitting += free.room.gpu_milli[node, gpu] >= milli
        left = int(draw * fitting)
        for gpu in range(free.room.gpus[node]):
            if free.room.gpu_milli[node, gpu] >= milli:
                if left == 0:
                    used[0] = gpu
                left -= 1
    else:
        least_free(free.room, node, gpus, milli, used)


@leaf
def _dot_product(free: Free, node: int, requests: Requests, request: int) -> int:
    """Prefer the node whose free cores and GPUs match the request least, as a dot product."""
    cpu = requests.cpu_milli[request] / CPU_SCALE_MILLI * (free.room.cpu_milli[node] / CPU_SCALE_MILLI)
    asked = requests.num_gpus[request] * requests.gpu_milli[request] / GPU_SCALE_MILLI
    return int(100 * (1 - 0.5 * (cpu + asked * (free_of_gpus(free.room, node) / GPU_SCALE_MILLI))))


@leaf
def _best_fit(free: Free, node: int, requests: Requests, request: int) -> int:
    """Prefer the node with the least left, cores and GPUs weighing the same."""
    cpu = (free.room.cpu_milli[node] - requests.cpu_milli[request]) / CPU_SCALE_MILLI
    asked = requests.num_gpus[request] * requests.gpu_milli[request]
    return int(100 * (1 - 0.5 * cpu - 0.5 * ((free_of_gpus(free.room, node) - asked) / GPU_SCALE_MILLI)))


@leaf
def _gpu_clustering(free: Free, node: int, requests: Requests, request: int) -> int:
    """Prefer nodes with pods of the same group only, then with some such pods, then unused ones; fuller nodes first.

    A group is the number of GPUs, or a fraction of one. A node with fewer than eight GPUs counts as partly used.
    """
    group = requests.group[request]
    if group < 0:
        return 0
    others = False
    for other in range(free.groups.shape[1]):
        others = others or (other != group and free.groups[node, other])
    alone = 0 if others else 25
    base = 50 + alone if free.groups[node, group] else alone
    return base + int(25 * (GPU_SCALE_MILLI - free_of_gpus(free.room, node)) / GPU_SCALE_MILLI)


@leaf
def _gpu_packing(free: Free, node: int, requests: Requests, request: int, used: Ints) -> int:
    """Prefer GPUs that others already use, the fuller the better, then free GPUs of used nodes, then empty nodes."""
    wanted = requests.num_gpus[request]
    if wanted == 0:
        return 0
    whole = whole_gpus(free.room, node)
    if whole == free.room.gpus[node]:
        return max(33 - whole, whole)
    least_free(free.room, node, wanted, requests.gpu_milli[request], used)
    opened, room = 0, 0
    for place in range(wanted):
        milli = free.room.gpu_milli[node, used[place]]
        opened += milli == GPU_MILLI
        room += milli
    if opened > 0:
        return max(50 - opened, 33)
    return max(100 - room * 100 // GPU_MILLI // 10, 50)
