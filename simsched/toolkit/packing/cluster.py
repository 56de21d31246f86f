"""Nodes and pods' requests as arrays for compiled code, and which requests fit on a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.jit import leaf
from simsched.model import Node
from simsched.model.capacity import Room
from simsched.model.placement import GPU_MILLI, Pod

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
