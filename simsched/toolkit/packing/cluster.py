"""Nodes and pods' requests as arrays for compiled code, which requests fit, and FGD's measure of fragmentation.

Fragmentation is how much of a node's free GPUs the expected pods cannot use (Weng et al., "Beware of Fragmentation",
USENIX ATC'23, section 3), as its published simulator computes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.jit import jit, leaf
from simsched.kernels import exp
from simsched.model import Node
from simsched.model.capacity import Room
from simsched.model.placement import COVERED, GPU_MILLI, Pod, usual_requests

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

#: The most pods that a node holds in the published simulator.
MOST_PODS = 1001

#: Cores in thousandths, GPUs, thousandths of each, and the text that names the models: all that rules see of a pod.
Request = tuple[int, int, int, str]


def request_of(pod: Pod) -> Request:
    """Return the request of a pod without its memory, which only decides where it fits."""
    return pod.cpu_milli, pod.num_gpus, pod.gpu_milli, pod.gpu_spec


class Requests(NamedTuple):
    """Distinct requests, as arrays of shape (requests,); `accepted` (models, requests) says which GPUs each accepts.

    `group` is the class of `gpu-clustering`: -1 without a GPU, 0 for a fraction of one, else the 1-based rank of its
    number of GPUs among those that occur.
    """

    cpu_milli: Ints
    num_gpus: Ints
    gpu_milli: Ints
    group: Ints
    accepted: Bools

    @classmethod
    def of(cls, requests: Sequence[Request], models: Sequence[str]) -> Requests:
        """Take requests in their order, for nodes with GPUs of `models`."""
        pods = [Pod("", cpu, 0, gpus, milli, spec) for cpu, gpus, milli, spec in requests]
        numbers = sorted({pod.num_gpus for pod in pods if pod.num_gpus})
        group = [-1 if not pod.num_gpus else 0 if pod.shares else 1 + numbers.index(pod.num_gpus) for pod in pods]
        accepted = [[not pod.gpu_models or model in pod.gpu_models for pod in pods] for model in models]
        cpu, gpus, milli = (np.array([one[i] for one in requests], dtype=np.int64) for i in range(3))
        return cls(cpu, gpus, milli, np.array(group, dtype=np.int64), np.array(accepted, dtype=np.bool_))


class Free(NamedTuple):
    """Free resources of each node, and the rest of what rules read.

    `model` is the index of a node's GPU type, `pods` its number of pods, and `groups` (nodes, groups) marks which
    groups are present.
    """

    room: Room
    model: Ints
    pods: Ints
    groups: Bools

    @classmethod
    def of(cls, nodes: Sequence[Node], models: Sequence[str], groups: int) -> Free:
        """Take empty nodes in their order."""
        model = np.array([models.index(node.gpu_type) for node in nodes], dtype=np.int64)
        return cls(Room.of(nodes), model, np.zeros_like(model), np.zeros((len(nodes), groups), dtype=np.bool_))


@leaf
def free_of_gpus(room: Room, node: int) -> int:
    """Return the thousandths of GPUs that are free on a node."""
    total = 0
    for gpu in range(room.gpus[node]):
        total += room.gpu_milli[node, gpu]
    return total


@leaf
def whole_gpus(room: Room, node: int) -> int:
    """Return how many GPUs of a node are completely free."""
    whole = 0
    for gpu in range(room.gpus[node]):
        whole += room.gpu_milli[node, gpu] == GPU_MILLI
    return whole


@leaf
def fits(free: Free, node: int, requests: Requests, request: int) -> bool:
    """Return whether a node has the cores, the model and the GPUs that a request wants."""
    if free.room.cpu_milli[node] < requests.cpu_milli[request]:
        return False
    wanted = requests.num_gpus[request]
    if wanted == 0:
        return True
    if not requests.accepted[free.model[node], request]:
        return False
    for gpu in range(free.room.gpus[node]):
        wanted -= free.room.gpu_milli[node, gpu] >= requests.gpu_milli[request]
    return bool(wanted <= 0)


@leaf
def least_free(room: Room, node: int, wanted: int, milli: int, used: Ints) -> None:
    """Put into `used` the `wanted` GPUs with the least free capacity of at least `milli`, least first, ties by index.

    For whole GPUs these are the first completely free ones. The request must fit.
    """
    for place in range(wanted):
        best = -1
        for gpu in range(room.gpus[node]):
            left = room.gpu_milli[node, gpu]
            if left < milli or (best >= 0 and left >= room.gpu_milli[node, best]):
                continue
            taken = False
            for earlier in range(place):
                taken = taken or used[earlier] == gpu
            if not taken:
                best = gpu
        used[place] = best


@leaf
def take(free: Free, node: int, requests: Requests, request: int, memory_mib: int, used: Ints) -> None:
    """Give a request the GPUs in `used`, and its cores and memory."""
    free.room.cpu_milli[node] -= requests.cpu_milli[request]
    free.room.memory_mib[node] -= memory_mib
    free.pods[node] += 1
    for place in range(requests.num_gpus[request]):
        free.room.gpu_milli[node, used[place]] -= requests.gpu_milli[request]
    if requests.group[request] >= 0:
        free.groups[node, requests.group[request]] = True


class Target(NamedTuple):
    """The expected pods, as classes with their `share`, shape (classes,); shares add up to 1."""

    requests: Requests
    share: Floats

    @classmethod
    def of(cls, pods: Iterable[Pod], models: Sequence[str], covered: float = COVERED) -> Target:
        """Take the most frequent requests until they cover the share `covered` of all pods.

        Ties: more cores, a larger fraction of a GPU, more GPUs, the later text.
        """
        asked = sorted(map(request_of, pods), key=lambda one: (one[0], one[2], one[1], one[3]), reverse=True)
        kept = usual_requests(Counter(asked), covered)
        return cls(Requests.of([one for one, _ in kept], models), np.array([share for _, share in kept]))


class Fragments(NamedTuple):
    """The terms of fragmentation by node and class, with an extra row to try a change.

    `fitting` counts the GPUs with enough free for a class, `too_small` sums what the others have free; `unusable`,
    shape (nodes,), is the fragmentation in thousandths of GPUs.
    """

    fitting: Ints
    too_small: Ints
    unusable: Floats

    @classmethod
    def of(cls, free: Free, target: Target) -> Fragments:
        """Compute the terms of all nodes."""
        nodes, classes = len(free.room.gpus), len(target.share)
        rows = np.zeros((2, nodes + 1, classes), dtype=np.int64)
        fragments = cls(rows[0], rows[1], np.zeros(nodes))
        for node in range(nodes):
            count(free, node, target, fragments)
        return fragments


@jit
def count(free: Free, node: int, target: Target, fragments: Fragments) -> None:
    """Update the terms of a node that has changed."""
    for one in range(len(target.share)):
        fitting, too_small = 0, 0
        for gpu in range(free.room.gpus[node]):
            room = free.room.gpu_milli[node, gpu]
            if room >= target.requests.gpu_milli[one]:
                fitting += 1
            else:
                too_small += room
        fragments.fitting[node, one] = fitting
        fragments.too_small[node, one] = too_small
    cpu, total = free.room.cpu_milli[node], free_of_gpus(free.room, node)
    fragments.unusable[node] = _unusable(target, free.model[node], cpu, total, fragments, node)


@leaf
def _unusable(target: Target, model: int, cpu_milli: int, total: int, fragments: Fragments, row: int) -> float:
    """Return the expected thousandths of `total` free ones that a pod of the target cannot use.

    All of them for a class that wants no GPU or cannot run, else those of GPUs with less free than the class wants.
    Sums run within each case, then over cases, as in the published runs, because rounding decides some scores.
    """
    wanted = target.requests
    lacks_both = lacks_gpu = lacks_cpu = no_gpu_runs = no_gpu_lacks = no_access = 0.0
    for one in range(len(target.share)):
        share = target.share[one]
        enough_cpu = cpu_milli >= wanted.cpu_milli[one]
        if wanted.num_gpus[one] == 0:
            if enough_cpu:
                no_gpu_runs += share * total
            else:
                no_gpu_lacks += share * total
        elif not wanted.accepted[model, one]:
            no_access += share * total
        elif fragments.fitting[row, one] < wanted.num_gpus[one]:
            if enough_cpu:
                lacks_gpu += share * total
            else:
                lacks_both += share * total
        elif not enough_cpu:
            lacks_cpu += share * total
        else:
            lacks_gpu += share * fragments.too_small[row, one]
    return float(lacks_both + lacks_gpu + lacks_cpu + no_gpu_runs + no_gpu_lacks + no_access)


@leaf
def growth(
    free: Free, node: int, requests: Requests, request: int, used: Ints, target: Target, fragments: Fragments
) -> float:
    """Return by how many thousandths the fragmentation of a node grows when a request takes the GPUs in `used`."""
    milli, row = requests.gpu_milli[request], len(fragments.unusable)
    gpus = requests.num_gpus[request]
    for one in range(len(target.share)):
        least = target.requests.gpu_milli[one]
        fitting, too_small = fragments.fitting[node, one], fragments.too_small[node, one]
        for place in range(gpus):
            room = free.room.gpu_milli[node, used[place]]
            if room < least:
                too_small -= milli
            elif room - milli < least:
                fitting -= 1
                too_small += room - milli
        fragments.fitting[row, one] = fitting
        fragments.too_small[row, one] = too_small
    cpu = free.room.cpu_milli[node] - requests.cpu_milli[request]
    total = free_of_gpus(free.room, node) - gpus * milli
    return float(_unusable(target, free.model[node], cpu, total, fragments, row) - fragments.unusable[node])


@leaf
def score_by_growth(
    free: Free, node: int, requests: Requests, request: int, used: Ints, target: Target, fragments: Fragments
) -> int:
    """Return 100 times the sigmoid of the fall in fragmentation, in GPUs, and put the GPUs for it into `used`.

    A fraction of a GPU goes to the GPU with the best score, ties by index. The request must fit.
    """
    milli = requests.gpu_milli[request]
    if requests.num_gpus[request] != 1 or milli == GPU_MILLI:
        least_free(free.room, node, requests.num_gpus[request], milli, used)
        return _sigmoid(growth(free, node, requests, request, used, target, fragments))
    best, chosen = -1, -1
    for gpu in range(free.room.gpus[node]):
        room, seen = free.room.gpu_milli[node, gpu], False
        for earlier in range(gpu):
            seen = seen or free.room.gpu_milli[node, earlier] == room
        if room < milli or seen:
            continue
        used[0] = gpu
        score = _sigmoid(growth(free, node, requests, request, used, target, fragments))
        if score > best:
            best, chosen = score, gpu
    used[0] = chosen
    return best


@leaf
def _sigmoid(grown_milli: float) -> int:
    return int(100 / (1 + exp(grown_milli / GPU_MILLI)))
