"""Backfill on nodes: when enough will be free on enough nodes, and which jobs can start now without delaying others.

Times are integer ticks, limits at least one. A pass stores the free resources of each node at every time at which they
change; with t such times and n nodes, planning a job costs O(t n) at worst, and less for a job like an earlier one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.jit import jit
from simsched_policies.production.slurm.backfill import NEVER

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
#: The columns of a node's free resources; the last is the index of its reservation, 0 for none.
GPUS, CORES, MEMORY, RESERVED = range(4)
#: The columns of a want: nodes (0: any number), GPUs, cores and memory of each, the nodes allowed (a row of `masks`),
#: whether nodes must be idle, and the reservation that it may use.
W_NODES, W_GPUS, W_CORES, W_MEMORY, W_MASK, W_ALONE, W_RESERVATION = range(7)
#: The extent of a pass: up to the first job that must wait, with a reservation for that one, with one for every job, or
#: with none. The first two count separately for each mask, as Slurm does for each partition.
STRICT, EASY, EVERYBODY, NOBODY = range(4)
#: Which nodes are taken first: those with the fewest free GPUs, with the most, or in index order.
FULLEST, EMPTIEST, FIRST = 1, -1, 0


class Manner(NamedTuple):
    """How a pass plans: its extent, in blocks of `step`, and which nodes come first.

    Blocks are aligned to the clock, or start `from_pass`. Jobs planned for later may hold `whole_nodes`. All masks
    count `together` as one partition.
    """

    how: int
    step: int = 1
    from_pass: bool = False
    whole_nodes: bool = False
    first: int = FULLEST
    together: bool = False


class Pass(NamedTuple):
    """The initial state of a backfill pass: free and whole nodes, ends of running jobs, blocks of reservations.

    `free` and `whole` have shape (nodes, 4); `ends` ascend, and `rows` hold node, GPUs, cores and memory released then;
    `blocks` hold node, start, end and index of the reservation; the constants define the columns of `wants`.
    """

    free: Ints
    whole: Ints
    ends: Ints
    rows: Ints
    blocks: Ints
    wants: Ints
    masks: Flags
    #: Wants that cannot start now, whatever a plan that only counts says.
    stuck: Flags

    def plan(
        self, now: int, kinds: Ints, limits: Ints, horizon: int, manner: Manner
    ) -> tuple[Ints, list[tuple[int, tuple[tuple[int, int], ...]]]]:
        """Plan waiting jobs in the given order, each one of `wants` (by `kinds`) with a limit.

        Returns the planned starts (`NEVER` without one; those beyond the horizon, which reserve nothing, with a minus
        sign), and for those that start now their position in the order and their nodes with GPUs. Ends are planned at
        starts of blocks.
        """
        starts = np.full(len(kinds), NEVER, dtype=np.int64)
        blocks, step = self.blocks, manner.step
        if len(blocks):  # no job is planned to run while the others last
            blocks = blocks[(blocks[:, 2] > now) & (blocks[:, 1] < horizon + int(limits.max(initial=0)) + step)]
        state = self._replace(blocks=blocks)
        picked = np.empty((64 + 4 * len(self.free), 3), dtype=np.int64)
        zero = now % step if manner.from_pass else 0
        how = manner.how, manner.whole_nodes, manner.first, manner.together
        while True:
            found = _plan(*state, now, kinds, limits, horizon, *how, step, zero, starts, picked)
            if found >= 0:
                break
            starts[:] = NEVER
            picked = np.empty((4 * len(picked), 3), dtype=np.int64)
        begun: dict[int, list[tuple[int, int]]] = {}
        for job, node, gpus in picked[:found].tolist():
            begun.setdefault(job, []).append((node, gpus))
        return starts, [(job, tuple(at)) for job, at in begun.items()]


@jit
def _bad(level: Ints, whole: Ints, node: int, want: Ints) -> bool:
    """Return whether a node has too little for a part of a want."""
    if level[node, 3] != 0 and level[node, 3] != want[6]:
        return True
    if want[5] and (
        level[node, 0] < whole[node, 0] or level[node, 1] < whole[node, 1] or level[node, 2] < whole[node, 2]
    ):
        return True
    if want[0] == 0:
        return _units(level, node, want) == 0
    return bool(level[node, 0] < want[1] or level[node, 1] < want[2] or level[node, 2] < want[3])


@jit
def _units(level: Ints, node: int, want: Ints) -> int:
    """Count the GPUs of a node available to a want without a number of nodes."""
    most = min(level[node, 0], want[1])
    while most > 0 and (
        level[node, 1] < -(-want[2] * most // want[1]) or level[node, 2] < -(-want[3] * most // want[1])
    ):
        most -= 1
    return int(max(most, 0))


@jit
def _round_up(time: int, step: int, zero: int) -> int:
    """Return when the next block starts, given that one starts at `zero`."""
    return -(-(time - zero) // step) * step + zero


@jit
def _times(ends: Ints, blocks: Ints, now: int, step: int, zero: int) -> Ints:
    """List the future times at which something changes, ascending."""
    found = np.empty(1 + len(ends) + 2 * len(blocks), dtype=np.int64)
    found[0], count = now, 1
    for i in range(len(ends)):
        count = _insert(found, count, max(_round_up(ends[i], step, zero), now + 1))
    for i in range(len(blocks)):
        for side in (1, 2):
            if blocks[i, side] > now:
                count = _insert(found, count, blocks[i, side])
    return found[:count]


@jit
def _insert(times: Ints, count: int, time: int) -> int:
    """Insert a time into ascending ones, the first of which is earlier, unless present; return their number."""
    place = count
    while times[place - 1] > time:
        place -= 1
    if times[place - 1] == time:
        return count
    for i in range(count, place, -1):
        times[i] = times[i - 1]
    times[place] = time
    return count + 1


@jit
def _plan(
    free: Ints,
    whole: Ints,
    ends: Ints,
    rows: Ints,
    blocks: Ints,
    wants: Ints,
    masks: Flags,
    stuck: Flags,
    now: int,
    kinds: Ints,
    limits: Ints,
    horizon: int,
    how: int,
    whole_nodes: bool,
    first: int,
    together: bool,
    step: int,
    zero: int,
    starts: Ints,
    picked: Ints,
) -> int:
    """Fill in planned starts and the nodes picked now; return the number of rows, -1 if they did not fit."""
    first_times = _times(ends, blocks, now, step, zero)
    most, count = len(first_times) + 2 * len(kinds) + 2, len(first_times)
    times, order = np.empty(most, dtype=np.int64), np.arange(most)
    levels = np.empty((most, len(free), 4), dtype=np.int64)
    for i in range(count):
        times[i] = first_times[i]
    _fill(levels, first_times, free, whole, ends, rows, blocks, now, step, zero)
    bounds = np.zeros((len(wants), 2), dtype=np.int64)
    waits, failed = np.zeros(len(masks), dtype=np.bool_), np.zeros(len(wants), dtype=np.int64)
    chosen, written = np.empty((len(free), 2), dtype=np.int64), 0
    for job in range(len(kinds)):
        kind, limit, want = kinds[job], limits[job], wants[kinds[job]]
        zone = 0 if together else want[4]
        if waits[zone] and (how == 0 or (stuck[kind] and how != 2)):
            continue
        last = 0 if how == 0 or how == 3 or (how == 1 and waits[zone]) else count - 1
        if last == 0 and failed[kind] > 0 and limit >= failed[kind]:
            waits[zone] = True
            continue  # a similar job, no longer than this one, could not start
        known = bounds[kind, 1] > 0 and limit >= bounds[kind, 1]
        begin = np.searchsorted(times[:count], bounds[kind, 0]) if known else 0
        place = _earliest(times, order, levels, count, whole, want, masks[want[4]], limit, begin, last, first, chosen)
        waits[zone] = waits[zone] or place != 0 or stuck[kind]
        if place != 0 and (failed[kind] == 0 or limit < failed[kind]):
            failed[kind] = limit
        if how == 2 and (known or bounds[kind, 1] == 0):
            bounds[kind, 0], bounds[kind, 1] = times[place] if place >= 0 else np.iinfo(np.int64).max, limit
        if place >= 0:
            starts[job] = times[place] if times[place] <= horizon else -times[place]
        if starts[job] < 0:
            continue
        end = _round_up(times[place] + limit, step, zero)
        until = int(np.searchsorted(times[:count], end))
        count = _divide(times, order, levels, count, until, end)
        parts = _reserve(levels, order, place, until, want, bool(want[5]) or (whole_nodes and place > 0), chosen)
        if place == 0 and not stuck[kind]:
            if written + parts > len(picked):
                return -1
            for i in range(parts):
                picked[written, 0], picked[written, 1], picked[written, 2] = job, chosen[i, 0], chosen[i, 1]
                written += 1
    return written


@jit
def _fill(
    levels: Ints,
    times: Ints,
    free: Ints,
    whole: Ints,
    ends: Ints,
    rows: Ints,
    blocks: Ints,
    now: int,
    step: int,
    zero: int,
) -> None:
    """Fill in the free resources and the reservation of each node at each time."""
    at = 0
    for i in range(len(times)):
        _copy(free if i == 0 else levels[i - 1], levels[i])
        while at < len(ends) and max(_round_up(ends[at], step, zero), now + 1) <= times[i]:
            node = rows[at, 0]
            if whole[node, 0] >= 0:
                for column in range(3):
                    levels[i, node, column] += rows[at, 1 + column]
            at += 1
        for node in range(len(free)):
            levels[i, node, 3] = 0
        for b in range(len(blocks)):
            if blocks[b, 1] <= times[i] < blocks[b, 2]:
                levels[i, blocks[b, 0], 3] = blocks[b, 3]


@jit
def _divide(times: Ints, order: Ints, levels: Ints, count: int, place: int, time: int) -> int:
    """Insert a step at a time, with the level of the previous one; return the number of steps."""
    if place < count and times[place] == time:
        return count
    for i in range(count, place, -1):
        times[i], order[i] = times[i - 1], order[i - 1]
    times[place], order[place] = time, count
    _copy(levels[order[place - 1]], levels[count])
    return count + 1


@jit
def _copy(source: Ints, target: Ints) -> None:
    """Copy a level; numba takes three seconds to compile an assignment of slices."""
    for node in range(len(source)):
        for column in range(4):
            target[node, column] = source[node, column]


@jit
def _earliest(
    times: Ints,
    order: Ints,
    levels: Ints,
    count: int,
    whole: Ints,
    want: Ints,
    mask: Flags,
    limit: int,
    begin: int,
    last: int,
    first: int,
    chosen: Ints,
) -> int:
    """Find the first step, from `begin` to `last`, from which a want fits for `limit`; -1 if there is none.

    Fills in the nodes that it would get, with their GPUs, in the order set by `first`.
    """
    bad_at = np.full(len(mask), -1, dtype=np.int64)
    seen = begin
    for place in range(begin, last + 1):
        until, enough = place + 1, True
        while enough and until <= count:
            while seen < until:
                for node in range(len(mask)):
                    if mask[node] and _bad(levels[order[seen]], whole, node, want):
                        bad_at[node] = seen
                seen += 1
            enough = _good(mask, bad_at, place) >= max(want[0], 1)
            if until == count or times[until] >= times[place] + limit:
                break
            until += 1
        if not enough:
            continue
        if _choose(levels, order, place, until, want, mask, bad_at, first, chosen):
            return place
    return -1


@jit
def _good(mask: Flags, bad_at: Ints, place: int) -> int:
    """Count the nodes of a mask that suffice from a step on."""
    good = 0
    for node in range(len(mask)):
        if mask[node] and bad_at[node] < place:
            good += 1
    return good


@jit
def _choose(
    levels: Ints, order: Ints, place: int, until: int, want: Ints, mask: Flags, bad_at: Ints, first: int, chosen: Ints
) -> bool:
    """Choose among the nodes that suffice from one step to another; return whether there are enough."""
    good, total = 0, 0
    for node in range(len(mask)):
        if mask[node] and bad_at[node] < place:
            amount = want[1]
            if want[0] == 0:
                for step in range(place, until):
                    amount = min(amount, _units(levels[order[step]], node, want))
            chosen[good, 0], chosen[good, 1] = node, amount
            good, total = good + 1, total + amount
    if (want[0] == 0 and total < want[1]) or good < want[0]:
        return False
    free = first * levels[order[place], :, 0]
    missing = want[1]
    for i in range(good):
        if (want[0] > 0 and i == want[0]) or (want[0] == 0 and missing == 0):
            break
        best = i
        for other in range(i + 1, good):
            fuller = free[chosen[other, 0]] < free[chosen[best, 0]]
            if fuller or (free[chosen[other, 0]] == free[chosen[best, 0]] and chosen[other, 0] < chosen[best, 0]):
                best = other
        for column in range(2):
            chosen[i, column], chosen[best, column] = chosen[best, column], chosen[i, column]
        if want[0] == 0:
            chosen[i, 1] = min(chosen[i, 1], missing)
            missing -= chosen[i, 1]
    return True


@jit
def _reserve(levels: Ints, order: Ints, place: int, until: int, want: Ints, whole: bool, chosen: Ints) -> int:
    """Subtract what is chosen from the steps from `place` to before `until`; return its number of nodes."""
    parts, missing = 0, want[1]
    while (want[0] > 0 and parts < want[0]) or (want[0] == 0 and missing > 0):
        node, gpus = chosen[parts, 0], chosen[parts, 1]
        for step in range(place, until):
            level = levels[order[step], node]
            if whole:
                level[0] = level[1] = level[2] = -1
            else:
                level[0] -= gpus
                level[1] -= want[2] if want[0] > 0 else -(-want[2] * gpus // want[1])
                level[2] -= want[3] if want[0] > 0 else -(-want[3] * gpus // want[1])
        parts, missing = parts + 1, missing - gpus
    return parts
