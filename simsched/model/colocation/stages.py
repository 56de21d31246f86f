"""Sharing by interleaving the stages of iterations (Muri, SIGCOMM'22, section 4.1).

A job's iteration loads data, computes on the GPU and synchronises over the network; jobs in a group use the resources
in turn, in a pipeline of four slots. AntMan's opportunistic jobs use the gaps that one guaranteed job leaves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from types import MappingProxyType

from simsched.errors import input_error
from simsched.model.colocation.contract import Resident, refuse_two_guaranteed

#: Seconds of an iteration for data loading, on the GPU, and on the network.
Stages = tuple[float, float, float]

_SLOTS = 4
_STEPS = 8
#: The factor by which a group is slower than its pipeline, by number of jobs, as measured for Muri.
MURI_OVERHEAD: Mapping[int, float] = MappingProxyType({2: 1.33 / 1.015, 3: 1.5 / 1.015, 4: 1.37 / 1.015})


def pipeline_s(order: Sequence[Stages]) -> float:
    """Return the seconds of an iteration of up to four jobs that enter the pipeline in this order.

    The slots end at f(0) = 0 and f(i+1) = max over the existing jobs of f(i) + network of the job in slot i+1, f(i) +
    GPU of slot i+2, and f(i-1) + data of slot i+3 (data loads over two slots). The result is f(i+1) - f(i-3) once that
    differs from f(i) - f(i-4) by less than one part in a thousand, or else f(8) - f(4).
    """
    jobs: list[Stages | None] = [*order, *[None] * (_SLOTS - len(order))]
    ends_s = [0.0]
    for i in range(_STEPS):
        on_network, on_gpu, loading = jobs[(i + 1) % _SLOTS], jobs[(i + 2) % _SLOTS], jobs[(i + 3) % _SLOTS]
        end_s = 0.0
        if on_network is not None:
            end_s = ends_s[i] + on_network[2]
        if on_gpu is not None:
            end_s = max(end_s, ends_s[i] + on_gpu[1])
        if loading is not None and i > 0:
            end_s = max(end_s, ends_s[i - 1] + loading[0])
        ends_s.append(end_s)
        if i >= _SLOTS and math.isclose(end_s - ends_s[-1 - _SLOTS], ends_s[i] - ends_s[i - _SLOTS], rel_tol=1e-3):
            break
    return ends_s[-1] - ends_s[-1 - _SLOTS]


def group_s(group: Sequence[Stages], *, worst: bool = False) -> float:
    """Return the seconds of an iteration of two to four jobs in their best order, or in their `worst`.

    Two jobs may also alternate: one loads while the other computes and synchronises.
    """
    times = [pipeline_s(order) for order in permutations(group)]
    if len(group) == 2:
        one, other = group
        times.append(max(one[0], other[1] + other[2]) + max(other[0], one[1] + one[2]))
    return max(times) if worst else min(times)


def gap_turns(own: Stages, other: Stages) -> int:
    """Count the iterations of `other` whose gaps hold one iteration of an opportunistic job.

    Each stage fits into the time that `other` leaves the resource idle; the rest of a gap serves the next stage. The
    arithmetic is that of Muri's simulator of AntMan, which rounds quotient and remainder separately. Raises
    `ZeroDivisionError` if `other` leaves nothing of a required resource.
    """
    first, second, third = own
    data, gpu, net = other
    gap = gpu + net
    turns, rest = _laps(first, gap)
    if rest > 0:
        turns += 1
        second -= min(second, net, gap - rest)
    more, rest = _laps(second, data + net)
    turns += more
    if rest > 0:
        turns += 1
        if rest < data:
            third -= min(third, data + gpu - rest)
    more, rest = _laps(third, data + gpu)
    return turns + more + (rest > data)


def _laps(time_s: float, gap_s: float) -> tuple[int, float]:
    if not time_s:
        return 0, 0.0
    return math.floor(time_s / gap_s), time_s % gap_s


@dataclass(frozen=True)
class StageInterleaving:
    """Jobs in a group finish one iteration each in the time of their pipeline, times an overhead by their number.

    `overhead` maps the number of jobs to the factor, 1 if it has none; `worst` selects the worst order.
    """

    overhead: Mapping[int, float] = field(default_factory=lambda: MURI_OVERHEAD)
    worst: bool = False
    _known: dict[tuple[Stages, ...], float] = field(default_factory=dict, init=False, repr=False, compare=False)

    def iteration_s(self, stages: Sequence[Stages]) -> float:
        """Return the seconds in which each of two to four jobs finishes an iteration."""
        key = tuple(stages)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = group_s(key, worst=self.worst) * self.overhead.get(len(key), 1.0)
        return known

    def speeds(self, on_one_gpu: Sequence[Resident], gpu_type: str) -> tuple[float, ...]:
        """Return the seconds of an iteration alone over those in the group; 1 for a job that is alone.

        Raises `InputError` for more than four jobs, or a job without stages.
        """
        if len(on_one_gpu) <= 1:
            return (1.0,) * len(on_one_gpu)
        if len(on_one_gpu) > _SLOTS:
            raise input_error("sharing", f"{len(on_one_gpu)} jobs share a GPU", "stages interleave at most four")
        together_s = self.iteration_s([stages_of(resident) for resident in on_one_gpu])
        return tuple(resident.iteration_s / together_s for resident in on_one_gpu)


@dataclass(frozen=True)
class GapFilling:
    """A guaranteed job runs as if alone; an opportunistic one takes one iteration of it per gap needed.

    Among themselves, opportunistic jobs run at half speed (Muri's simulator of AntMan).
    """

    def speeds(self, on_one_gpu: Sequence[Resident], gpu_type: str) -> tuple[float, ...]:
        """Return 1 for a guaranteed job and, for the others, the least that a neighbour leaves.

        Raises `InputError` for two guaranteed jobs, a job without stages next to a guaranteed one, and an opportunistic
        job that needs a resource which the guaranteed one uses up.
        """
        refuse_two_guaranteed(on_one_gpu)
        return tuple(self._speed(own, on_one_gpu) for own in on_one_gpu)

    def _speed(self, own: Resident, everybody: Sequence[Resident]) -> float:
        if own.guaranteed:
            return 1.0
        longest_s = own.iteration_s
        for other in everybody:
            if other is own:
                continue
            if other.guaranteed:
                longest_s = max(longest_s, self._turns(own, other) * other.iteration_s)
            else:
                longest_s = max(longest_s, 2 * own.iteration_s)
        return own.iteration_s / longest_s

    def _turns(self, own: Resident, other: Resident) -> int:
        try:
            return gap_turns(stages_of(own), stages_of(other))
        except ZeroDivisionError:
            message = f"application '{other.application}' is guaranteed and leaves '{own.application}' no gap at all"
            remedy = "choose another model of sharing, or place them apart"
            raise input_error("sharing", message, remedy) from None


def stages_of(resident: Resident) -> Stages:
    """Return the three stages of a resident, or raise `InputError` if it has none."""
    if len(resident.stages_s) != 3:
        raise input_error(
            f"application '{resident.application}'",
            f"has {len(resident.stages_s)} stage times, and interleaving needs three",
            "give seconds for loading, computing and synchronising, or choose another model of sharing",
        )
    loading, computing, synchronising = resident.stages_s
    return loading, computing, synchronising
