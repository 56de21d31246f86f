"""The compiled half of the search for prices: what each job buys at given prices."""

from __future__ import annotations

import numpy as np

from simsched.bounds.jobs import Floats, Ints
from simsched.jit import jit

# The purchases of a job are a heap by price with the dearest on top. An item is an interval and a mode of running in
# it; `where` is its index in the heap plus 1, 0 outside, and `bought` the progress bought there.


@jit
def _sift_up(heap: Ints, where: Ints, price: Floats, place: int) -> None:
    item = heap[place]
    while place > 0:
        above = (place - 1) // 2
        if price[heap[above]] >= price[item]:
            break
        heap[place] = heap[above]
        where[heap[place]] = place + 1
        place = above
    heap[place] = item
    where[item] = place + 1


@jit
def _pop(heap: Ints, where: Ints, price: Floats, size: int) -> int:
    where[heap[0]] = 0
    size -= 1
    if size == 0:
        return 0
    item = heap[size]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        if below + 1 < size and price[heap[below + 1]] > price[heap[below]]:
            below += 1
        if price[heap[below]] <= price[item]:
            break
        heap[place] = heap[below]
        where[heap[place]] = place + 1
        place = below
    heap[place] = item
    where[item] = place + 1
    return size


@jit
def _buy(heap: Ints, where: Ints, price: Floats, bought: Floats, size: int, item: int, amount: float) -> int:
    if where[item]:
        bought[item] += amount
        return size
    bought[item] = amount
    heap[size] = item
    _sift_up(heap, where, price, size)
    return size + 1


@jit
def _cheapest(
    release: float, work: float, rates: Floats, costs: Floats, starts: Floats, prices: Floats, first: int,
    stop: float, heap: Ints, where: Ints, price: Floats, bought: Floats, visits: Ints,
) -> tuple[float, float, int]:  # fmt: skip
    """Return the least sum of completion time and payment, its completion time, and the heap's size.

    Scans completion times upward and stops at `stop`, leaving in the heap what is bought by then.
    """
    ways, last = len(rates), len(starts) - 1
    size, k, paid = 0, first, 0.0
    now, left = release, work / rates.sum()
    visits[0] += 4  # the fixed cost of a job
    while left > 0.0:  # at full speed
        end = starts[k + 1] if k < last else np.inf
        visits[0] += 1
        span = min(left, end - now)
        for way in range(ways):
            item = k * ways + way
            price[item] = costs[way] * prices[k]
            if rates[way] > 0 and span > 0:
                size = _buy(heap, where, price, bought, size, item, rates[way] * span)
                paid += rates[way] * span * price[item]
        if left < end - now:
            now, left = now + left, 0.0
        else:
            now, left, k = end, left - span, k + 1
    best, at = now + paid, now
    while now < best and now < stop:
        end = starts[k + 1] if k < last else np.inf
        visits[0] += 1
        for way in range(ways):
            price[k * ways + way] = costs[way] * prices[k]
        while now < end and size > 0:  # replace the dearest by what is now cheaper
            top = heap[0]
            speed, saved = 0.0, 0.0
            for way in range(ways):
                if rates[way] > 0 and price[k * ways + way] < price[top]:
                    speed += rates[way]
                    saved += rates[way] * (price[top] - price[k * ways + way])
            if speed == 0.0:
                break
            span = bought[top] / speed
            used_up = span <= end - now
            span = min(span, end - now)
            dearest = price[top]
            if used_up:
                size = _pop(heap, where, price, size)
            else:
                bought[top] -= speed * span
            for way in range(ways):
                item = k * ways + way
                if rates[way] > 0 and price[item] < dearest:
                    size = _buy(heap, where, price, bought, size, item, rates[way] * span)
            now = now + span if used_up else end
            paid -= saved * span
            if now + paid < best:
                best, at = now + paid, now
            if now >= stop:
                return best, at, size
        if k == last:
            break
        now, k = end, k + 1
    return best, at, size


@jit
def _choose(
    release: float, work: float, rates: Floats, costs: Floats, starts: Floats, prices: Floats, first: int,
    heap: Ints, where: Ints, price: Floats, bought: Floats, visits: Ints,
) -> tuple[float, int]:  # fmt: skip
    """Return a job's least sum of completion time and payment, and the size of the heap of its purchases."""
    least, size, stop = 0.0, 0, np.inf
    for twice in range(2):
        value, at, size = _cheapest(
            release, work, rates, costs, starts, prices, first, stop, heap, where, price, bought, visits
        )
        if twice == 0:
            least, stop = value, at
        for place in range(size):
            where[heap[place]] = 0
    return least, size


@jit
def evaluate(
    release: Floats, work: Floats, rates: Floats, costs: Floats, capacity: float, starts: Floats, prices: Floats,
    used: Floats, parts: Floats, visits: Ints,
) -> float:  # fmt: skip
    """Return the Lagrangian at prices per unit-tick of each interval.

    `used` receives the unit-ticks bought in each interval, `parts` the contribution of each job, and `visits` the
    intervals that jobs visit, as a measure of the work. The last interval is endless and free.
    """
    ways, count = rates.shape[1], len(starts)
    heap = np.empty(count * ways + 1, dtype=np.int64)
    where = np.zeros(count * ways, dtype=np.int64)
    price = np.zeros(count * ways)
    bought = np.zeros(count * ways)
    used[:] = 0.0
    total, first = 0.0, 0
    for job in range(len(release)):
        while first + 1 < count and starts[first + 1] <= release[job]:
            first += 1
        value, size = _choose(
            release[job], work[job], rates[job], costs[job], starts, prices, first, heap, where, price, bought, visits
        )
        parts[job] = value - release[job]
        total += parts[job]
        for place in range(size):
            item = heap[place]
            used[item // ways] += bought[item] * costs[job, item % ways]
    for k in range(count - 1):
        total -= capacity * prices[k] * (starts[k + 1] - starts[k])
    return total


@jit
def choose_each(
    release: Floats, work: Floats, starts: Floats, first: Ints, rows: Ints, prices: Floats, used: Floats
) -> float:
    """Return the sum of payments and times of one-mode jobs, each at its own prices for a while and free later.

    Job j has the prices from `rows[j]` on, for the intervals from `first[j]` on; `used` receives its ticks in each.
    """
    most = int((rows[1:] - rows[:-1]).max()) + 1
    heap, where = np.empty(most + 1, dtype=np.int64), np.zeros(most, dtype=np.int64)
    price, bought, own = np.zeros(most), np.zeros(most), np.zeros(most)
    one, visits, total = np.ones(1), np.zeros(1, dtype=np.int64), 0.0
    used[:] = 0.0
    for job in range(len(release)):
        row, count = rows[job], rows[job + 1] - rows[job]
        own[:count], own[count] = prices[row : row + count], 0.0
        since = starts[first[job] : first[job] + count + 1]
        value, size = _choose(
            release[job], work[job], one, one, since, own[: count + 1], 0, heap, where, price, bought, visits
        )
        total += value - release[job]
        for place in range(size):
            if heap[place] < count:
                used[row + heap[place]] = bought[heap[place]]
    return total


@jit
def pack_each(
    spans: Floats, columns: Ints, order: Ints, widths: Ints, units: int, prices: Floats, packed: Floats
) -> float:
    """Return the most that a set of jobs that fits pays, summed over intervals; `packed` is 1 for the jobs in it.

    `order` lists prices by interval, with interval k from `columns[k]` on, and `widths` the units of each.
    """
    total = 0.0
    for k in range(len(spans)):
        here = order[columns[k] : columns[k + 1]]
        best = np.zeros(units + 1)
        taken = np.zeros((len(here), units + 1), dtype=np.bool_)
        for place in range(len(here)):
            value, width = prices[here[place]], widths[here[place]]
            packed[here[place]] = 0.0
            if value > 0.0:
                for room in range(units, width - 1, -1):
                    if best[room - width] + value > best[room]:
                        best[room], taken[place, room] = best[room - width] + value, True
        total += spans[k] * best[units]
        room = units
        for place in range(len(here) - 1, -1, -1):
            if taken[place, room]:
                packed[here[place]] = 1.0
                room -= widths[here[place]]
    return total


@jit
def fast_machine(release: Floats, area: Floats, capacity: float, starts: Floats, worth: Floats, ends: Floats) -> int:
    """Run jobs on one machine of all GPUs, the least remaining area first; returns the number of stretches of work.

    Stretch i begins at `starts[i]`, and `worth[i]` is 1 / area of the running job, 0 when idle; `ends` are the ends of
    jobs. `starts` and `worth` have room for four stretches per job plus one.
    """
    count = len(release)
    left, heap, where = area.copy(), np.empty(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    urgency = -area
    size, coming, now, stretches = 0, 0, 0.0, 0
    while size > 0 or coming < count:
        if size == 0 and release[coming] > now:
            starts[stretches], worth[stretches] = now, 0.0
            stretches += 1
            now = release[coming]
        while coming < count and release[coming] <= now:
            heap[size] = coming
            _sift_up(heap, where, urgency, size)
            size += 1
            coming += 1
        job = heap[0]
        span = left[job] / capacity
        starts[stretches], worth[stretches] = now, 1.0 / area[job]
        stretches += 1
        if coming < count and release[coming] - now < span:
            left[job] -= (release[coming] - now) * capacity
            urgency[job] = -left[job]  # so it stays on top
            now = release[coming]
        else:
            now += span
            ends[job] = now
            size = _pop(heap, where, urgency, size)
    starts[stretches], worth[stretches] = now, 0.0
    return stretches + 1
