"""Free resources of nodes in a round, now and once the leaving pods are gone, and the best place of a pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsched_policies.kubernetes.kai.model import CPU, GPU, SLACK, Amounts, Ask, Node, Pod, Rules, mig_gpus

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
#: "now" counts pods that run or leave, "future" those that run or will start.
When = Literal["now", "future"]


class Place(NamedTuple):
    """A node by index, and the names of the GPUs that a pod shares there."""

    node: int
    devices: tuple[str, ...] = ()


@dataclass
class Device:
    """A shared GPU: the memory in use and the number of pods, now and in the future."""

    used: dict[When, float] = field(default_factory=lambda: {"now": 0.0, "future": 0.0})
    holders: dict[When, int] = field(default_factory=lambda: {"now": 0, "future": 0})


class Room:
    """Free resources of nodes; nodes are ordered by name, so that ties go to the lowest index."""

    def __init__(self, nodes: Iterable[Node], rules: Rules) -> None:
        self.nodes = sorted(nodes, key=lambda node: node.name)
        self.index = {node.name: number for number, node in enumerate(self.nodes)}
        self._rules = rules
        profiles = sorted({profile for node in self.nodes for profile, _ in node.mig})
        self._slices = np.array([mig_gpus(profile) for profile in profiles])
        self._column = {profile: 3 + number for number, profile in enumerate(profiles)}
        rows = [(node.cpu_milli, node.memory_mb, float(node.gpus), *_of(profiles, node.mig)) for node in self.nodes]
        self.capacity: Floats = np.array(rows, dtype=np.float64).reshape(len(rows), 3 + len(profiles))
        self.free: dict[When, Floats] = {"now": self.capacity.copy(), "future": self.capacity.copy()}
        self.everywhere: Bools = np.ones(len(rows), dtype=np.bool_)
        self._memory = np.array([node.gpu_memory for node in self.nodes])
        self._shared: dict[int, dict[str, Device]] = {}
        self._named = 0

    @property
    def smallest_gpu_memory(self) -> float:
        """Memory of the smallest GPU of any node that has some."""
        return min((node.gpu_memory for node in self.nodes if node.gpus), default=1.0)

    def count(self, ask: Ask, place: Place, when: When, sign: int) -> None:
        """Add (`sign` 1) or remove (-1) a pod at a place."""
        row = self.free[when][place.node]
        row -= sign * self._vector(ask)
        for name in place.devices:
            devices = self._shared.setdefault(place.node, {})
            device = devices.setdefault(name, Device())
            was = device.holders[when] > 0
            device.holders[when] += sign
            device.used[when] += sign * self._on_device(ask, place.node)
            row[GPU] -= (device.holders[when] > 0) - was
            if not any(device.holders.values()):
                del devices[name]

    def _vector(self, ask: Ask) -> Floats:
        """Return what a pod takes besides shared GPUs; infinite if no node has its MIG profile."""
        found = np.zeros(self.capacity.shape[1])
        found[:3] = (ask.cpu_milli, ask.memory_mb, 0 if ask.shared else ask.gpus)
        for profile, number in ask.mig:
            if profile not in self._column:
                return np.full_like(found, np.inf)
            found[self._column[profile]] = number
        return found

    def _on_device(self, ask: Ask, node: int) -> float:
        return ask.gpu_memory or round(ask.portion, 2) * float(self._memory[node])

    def fits(self, pod: Pod, when: When) -> Bools:
        """Return on which nodes a pod fits."""
        free = self.free[when]
        found: Bools = np.all(free + SLACK >= self._vector(pod.ask), axis=1)
        if pod.nodes is not None:
            found = found & np.array([node.name in pod.nodes for node in self.nodes])
        if pod.ask.shared:
            room = np.floor(free[:, GPU] + SLACK)
            for node in self._shared:
                room[node] += sum(self._takes(node, name, pod.ask, when) for name in self._active(node, when))
            of_memory = self._memory if pod.ask.gpu_memory else np.ones(len(self.nodes))
            found = found & (room >= pod.ask.gpus) & (of_memory + SLACK >= pod.ask.gpu_memory)
        return found

    def copies(self, pod: Pod) -> Floats:
        """Return how many copies of a pod fit on each node once the leaving pods are gone."""
        ask = self._vector(pod.ask)
        taken = ask > 0
        free = self.free["future"]
        number = np.full(len(self.nodes), np.inf)
        if taken.any():
            number = np.floor((free[:, taken] + SLACK) / ask[taken]).min(axis=1)
        if pod.ask.shared:
            part = pod.ask.gpu_memory / self._memory if pod.ask.gpu_memory else np.full(len(number), pod.ask.portion)
            fit = np.floor(free[:, GPU] + SLACK) * np.floor(1 / part + SLACK)
            for node, devices in self._shared.items():
                left = [1 - devices[name].used["future"] / self._memory[node] for name in self._active(node, "future")]
                fit[node] += sum(int(have / part[node] + SLACK) for have in left)
            number = np.minimum(number, fit // pod.ask.gpus)
        number = np.maximum(number, 0.0)
        if pod.nodes is not None:
            number = number * np.array([node.name in pod.nodes for node in self.nodes], dtype=np.float64)
        found: Floats = number
        return found

    def copies_with(self, pod: Pod, node: int, freed: Iterable[Ask]) -> float:
        """Return a bound on how many copies of a pod fit on a node once some others have left."""
        if pod.nodes is not None and self.nodes[node].name not in pod.nodes:
            return 0.0
        free, ask = self.free["future"][node].copy(), self._vector(pod.ask)
        for one in freed:
            free += self._vector(one)
            free[GPU] += one.gpus if one.shared else 0
        taken = ask > 0
        if pod.ask.shared or not taken.any():
            return float("inf")
        return float(np.floor((free[taken] + SLACK) / ask[taken]).min())

    def future(self, nodes: Bools) -> Floats:
        """Return the total free CPU, memory and GPUs, with MIG instances, of some nodes without the leaving pods."""
        free = self.free["future"][:, :3].copy()
        free[:, GPU] = self._free_gpus() + (self.free["future"][:, 3:] * self._slices).sum(axis=1)
        found: Floats = free[nodes].sum(axis=0)
        return found

    def all_free(self) -> Amounts:
        """Return the total free resources of the cluster once the leaving pods are gone."""
        cpu, memory, gpu = map(float, self.future(self.everywhere))
        return (cpu, memory, gpu)

    def _free_gpus(self) -> Floats:
        """Return the free GPUs of each node, including the free parts of shared ones."""
        found = self.free["future"][:, GPU].copy()
        for node in self._shared:
            for name in self._active(node, "future"):
                found[node] += 1 - self._shared[node][name].used["future"] / self._memory[node]
        return found

    def _active(self, node: int, when: When) -> list[str]:
        return [name for name, device in sorted(self._shared.get(node, {}).items()) if device.holders[when]]

    def _takes(self, node: int, name: str, ask: Ask, when: When) -> bool:
        device = self._shared[node][name]
        if 0 < self._rules.max_per_device <= device.holders[when]:
            return False
        return device.used[when] + self._on_device(ask, node) <= float(self._memory[node]) + SLACK

    def choose(self, pod: Pod, allowed: Bools | None, order: Mapping[int, int]) -> Place | None:
        """Return the best place for a pod, None if there is none; `order` ranks nodes by topology, 0 to 10."""
        fitting = self.fits(pod, "future")
        if allowed is not None:
            fitting &= allowed
        candidates = np.flatnonzero(fitting)
        if not len(candidates):
            return None
        idle = self.fits(pod, "now")
        resource = GPU if pod.ask.gpus or pod.ask.mig else CPU
        free = self._free_gpus() if resource == GPU else self.free["future"][:, CPU]
        if self._rules.placement == "spread":
            free = -free / np.maximum(self.capacity[:, resource], SLACK)
        cpu_only = resource == CPU

        def worst_last(node: int) -> tuple[int, bool, bool, bool, float, int]:
            shares = pod.ask.shared and any(
                self._takes(node, name, pod.ask, "future") for name in self._active(node, "future")
            )
            lacks_gpus = cpu_only and self.nodes[node].gpus == 0
            best = (-order.get(node, 0), not shares, not idle[node], not lacks_gpus)
            return (*best, round(float(free[node]), 6), node)

        node = int(min(map(int, candidates), key=worst_last))
        return Place(node, self._devices(node, pod.ask))

    def idle(self, pod: Pod, place: Place) -> bool:
        """Return whether a pod can start at a place at once."""
        free = self.free["now"][place.node] + SLACK
        fresh = [name for name in place.devices if name not in self._active(place.node, "now")]
        full = [
            name for name in place.devices if name not in fresh and not self._takes(place.node, name, pod.ask, "now")
        ]
        return bool((free >= self._vector(pod.ask)).all()) and not full and len(fresh) <= free[GPU]

    def _devices(self, node: int, ask: Ask) -> tuple[str, ...]:
        """Return the GPUs that a pod shares on a node: the fullest that have room first, a free one last."""
        if not ask.shared:
            return ()
        known = self._shared.get(node, {})
        packed = self._rules.devices == "pack"
        fitting = [name for name in self._active(node, "future") if self._takes(node, name, ask, "future")]
        fitting.sort(key=lambda name: (-known[name].used["future"] if packed else known[name].used["future"], name))
        whole = int(self.free["future"][node, GPU] + SLACK)
        free = [name for name in sorted(known) if not known[name].holders["future"]][:whole]
        free += [self._new_name() for _ in range(min(whole - len(free), ask.gpus))]
        ordered = [*fitting, *free] if packed else [*free, *fitting]
        return tuple(ordered[: ask.gpus])

    def _new_name(self) -> str:
        self._named += 1
        return f"shared-{self._named}"


def _of(profiles: Sequence[str], owned: Iterable[tuple[str, int]]) -> list[float]:
    numbers = dict(owned)
    return [float(numbers.get(profile, 0)) for profile in profiles]
