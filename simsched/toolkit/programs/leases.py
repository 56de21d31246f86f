"""The program that reserves leases for jobs with deadlines, as Chronus does (Gao et al., SoCC'21).

A job that holds a lease runs on all its GPUs until the lease ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: The gap and the number of nodes at which the solver stops; it ignores the clock, so equal inputs give equal answers.
RELATIVE_GAP = 1e-3
NODE_LIMIT = 200
#: Programs with more choices than this are not solved: they take minutes, mostly to show that no answer exists.
MOST_CHOICES = 400
_SLACK_S = 1e-6


def reserve(need_s: Floats, gpus: Integers, usable_s: Floats, room: Integers) -> Flags | None:
    """Return which job holds which lease, shape (n, t), to give every job its seconds in time; None if no way is found.

    Job i needs `need_s[i]` seconds on `gpus[i]` GPUs and can use `usable_s[i, t]` of lease t (0 after its deadline);
    lease t has `room[t]` GPUs. First each job in order takes its earliest usable leases; if that fails and there are at
    most `MOST_CHOICES` pairs of job and lease, a program minimises GPU-leases weighted by how late they are.
    """
    early = reserve_in_order(need_s, gpus, usable_s, room)
    return early if early is not None else _program(need_s, gpus, usable_s, room)


def reserve_in_order(need_s: Floats, gpus: Integers, usable_s: Floats, room: Integers) -> Flags | None:
    """Reserve the earliest leases with room for each job in turn; None if a job would be late."""
    left = room.copy()
    held = np.zeros(usable_s.shape, dtype=bool)
    for job, missing_s in enumerate(need_s):
        for lease in range(len(room)):
            if missing_s <= _SLACK_S:
                break
            if usable_s[job, lease] > 0 and left[lease] >= gpus[job]:
                held[job, lease] = True
                left[lease] -= gpus[job]
                missing_s -= usable_s[job, lease]
        if missing_s > _SLACK_S:
            return None
    return held


def _program(need_s: Floats, gpus: Integers, usable_s: Floats, room: Integers) -> Flags | None:
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to load
    from scipy.sparse import coo_array  # slow to load

    jobs, leases = np.nonzero(usable_s > 0)
    if len(jobs) > MOST_CHOICES or (gpus * need_s).sum() > (room * usable_s.max(axis=0)).sum():
        return None
    each = np.arange(len(jobs))
    enough = coo_array((usable_s[jobs, leases], (jobs, each)), shape=(len(need_s), len(each))).tocsr()
    fits = coo_array((gpus[jobs].astype(np.float64), (leases, each)), shape=(len(room), len(each))).tocsr()
    solution = milp(
        gpus[jobs] * (leases + 1.0),
        integrality=np.ones(len(each), dtype=np.int64),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(enough, need_s, np.inf),
            LinearConstraint(fits, -np.inf, room.astype(np.float64)),
        ],
        options={"mip_rel_gap": RELATIVE_GAP, "node_limit": NODE_LIMIT},
    )
    if solution.x is None:
        return None
    held = np.zeros(usable_s.shape, dtype=bool)
    held[jobs, leases] = np.rint(solution.x).astype(bool)
    return held


def usable_seconds(
    begin_s: Sequence[float], end_s: Sequence[float], deadline_s: Sequence[float], loss_s: Sequence[float]
) -> Floats:
    """Return the seconds of each lease before each deadline, shape (n, t), less what job n loses as a lease starts."""
    begin, end = np.asarray(begin_s), np.asarray(end_s)
    until = np.minimum(end[None, :], np.asarray(deadline_s)[:, None])
    usable: Floats = np.maximum(until - begin[None, :] - np.asarray(loss_s)[:, None], 0.0)
    return usable
