"""The round mechanism: the unit with the largest share relative to its received time runs next.

Gavel (Narayanan et al., OSDI'20), section 5: in each round a unit's priority on a GPU type is its share divided by the
fraction of that type's time that it received since shares were last computed. Shockwave (NSDI'23) uses the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import ordered_sum
from simsched.errors import input_error

Floats = npt.NDArray[np.float64]

#: Jobs that run together on the same GPUs: one id, or two for a pair.
Unit = tuple[str, ...]

#: Factor on the share of a unit that received no time at all.
_NEVER_RAN = 1e9


@dataclass(frozen=True)
class RoundOptions:
    """Settings of the mechanism, defaults as in Gavel's simulator.

    `round_s` is the length of a round and `min_reset_s` the least time between two computations of shares, in seconds.
    `credit_s` is the time credited to a unit on arrival and at each reset, default half a round. With
    `unallocated_takes_room`, a unit added after the last computation of shares takes GPUs but does not run. With
    `idle_without_share`, a unit of priority 0 is not considered (FIFO policies).
    """

    round_s: float = 360.0
    min_reset_s: float = 1920.0
    credit_s: float | None = None
    unallocated_takes_room: bool = False
    idle_without_share: bool = False

    def __post_init__(self) -> None:
        """Raise `InputError` for a round without length or a negative time."""
        if not 0 < self.round_s < math.inf:
            raise input_error("rounds", f"round_s is {self.round_s}", "give the seconds of a round, above 0")
        for name in ("min_reset_s", "credit_s"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise input_error("rounds", f"{name} is {value}", "give seconds, at least 0")

    @property
    def initial_s(self) -> float:
        """Return the seconds credited to a unit at a reset."""
        return self.round_s / 2.0 if self.credit_s is None else self.credit_s


class Grant(NamedTuple):
    """A unit that holds GPUs of a type in the next round; if `runs` is false, they stay idle."""

    unit: Unit
    gpu_type: str
    num_gpus: int
    runs: bool


class Rounds:
    """State of the mechanism: time received by each unit on each GPU type since the last reset, deficits, shares.

    Call `add` and `remove` as jobs come and go, `receive` at the end of a unit's part of a round, `reset` with new
    shares when `due`, and `choose` for each round.
    """

    def __init__(self, gpu_types: Sequence[str], options: RoundOptions | None = None) -> None:
        """Start without units; `gpu_types` gives the order of the entries of shares."""
        self.options = options or RoundOptions()
        self._column = {gpu_type: number for number, gpu_type in enumerate(gpu_types)}
        self._row: dict[Unit, int] = {}
        self._units: list[Unit] = []
        self._num_gpus: list[int] = []
        self._allocated = np.zeros(0, dtype=bool)
        nobody = (0, len(gpu_types))
        self._received_s, self._deficit_s, self._share = np.zeros(nobody), np.zeros(nobody), np.zeros(nobody)
        self._able = np.zeros(nobody, dtype=bool)
        self._total_s = [0.0] * len(gpu_types)
        self._changed = False
        self.last_reset_s = 0.0

    @property
    def units(self) -> tuple[Unit, ...]:
        """List the units in the order of admission."""
        return tuple(self._units)

    def __contains__(self, unit: Unit) -> bool:
        """Return whether a unit is known."""
        return unit in self._row

    def add(self, unit: Unit, num_gpus: int, gpu_types: Collection[str] | None = None) -> None:
        """Admit a unit that needs `num_gpus` GPUs of one type (default: any); it has no share until the next reset."""
        able = list(self._column) if gpu_types is None else gpu_types
        self._open({unit: num_gpus}, [self._column[gpu_type] for gpu_type in able])
        self._changed = True

    def remove(self, job: str) -> None:
        """Forget a job that has ended, and every unit that contains it."""
        self._keep([job not in unit for unit in self._units])
        self._changed = True

    def ask_reset(self) -> None:
        """Make the next reset due although no job arrived or ended."""
        self._changed = True

    def receive(self, unit: Unit, gpu_type: str, seconds: float) -> None:
        """Count time that a unit has received on a GPU type; a removed unit counts for the type only."""
        column = self._column[gpu_type]
        self._total_s[column] += seconds
        row = self._row.get(unit)
        if row is not None:
            self._received_s[row, column] += seconds

    def receive_all(self, grants: Iterable[Grant], seconds: float) -> None:
        """Count the time of a round for all grants that ran."""
        known, columns, total_s = self._row, self._column, self._total_s
        types, entries = len(columns), []
        for unit, gpu_type, _, runs in grants:
            if runs:
                column = columns[gpu_type]
                total_s[column] += seconds
                row = known.get(unit)
                if row is not None:
                    entries.append(row * types + column)
        self._received_s.reshape(-1)[np.array(entries, dtype=np.intp)] += seconds

    def received_s(self, unit: Unit, gpu_type: str) -> float:
        """Return the seconds received since the last reset, including the initial credit."""
        return float(self._received_s[self._row[unit], self._column[gpu_type]])

    def deficit_s(self, unit: Unit, gpu_type: str) -> float:
        """Return the seconds that a unit was owed at the last reset, summed over resets; negative if it got more."""
        return float(self._deficit_s[self._row[unit], self._column[gpu_type]])

    def due(self, now_s: float) -> bool:
        """Return whether shares are due: something has changed, and the last reset is long enough ago."""
        waited = now_s - self.last_reset_s >= self.options.min_reset_s or self.last_reset_s == 0
        return self._changed and waited

    def reset(self, now_s: float, shares: Mapping[Unit, Sequence[float]], num_gpus: Mapping[Unit, int]) -> None:
        """Close the books and restart with new shares.

        `shares` maps units to one share of time for each GPU type. New pairs are admitted with `num_gpus`; pairs
        without a share are forgotten.
        """
        self.close(now_s)
        self._keep([len(unit) == 1 or unit in shares for unit in self._units])
        self._open({unit: num_gpus[unit] for unit in shares if unit not in self._row}, range(len(self._column)))
        nothing = [0.0] * len(self._column)
        self._allocated = np.array([unit in shares for unit in self._units], dtype=bool)
        self._share = np.array([shares.get(unit, nothing) for unit in self._units], dtype=np.float64)
        self._share = self._share.reshape(self._able.shape)
        credit_s = self.options.initial_s
        self._received_s = np.full(self._able.shape, credit_s)
        self._total_s = [ordered_sum([credit_s] * len(self._units))] * len(self._column)
        self._changed = False

    def close(self, now_s: float) -> None:
        """Add to each deficit what the shares promised since the last reset, less what was received."""
        passed_s, credit_s = now_s - self.last_reset_s, self.options.initial_s
        self._deficit_s += self._share * passed_s - (self._received_s - credit_s)
        self.last_reset_s = now_s

    def priority(self, unit: Unit, gpu_type: str) -> float:
        """Return a unit's share divided by the fraction of the type's time received; 0 without a share above 0."""
        return float(self._priorities()[self._row[unit], self._column[gpu_type]])

    def order(self) -> dict[str, tuple[float, float]]:
        """Return jobs by their largest priority on any type, then by the deficit on that type, the largest first."""
        priority, best = self._priorities(), dict[str, tuple[float, float]]()
        for row, unit in enumerate(self._units):
            at = int(priority[row].argmax())
            for job in unit:
                found = float(priority[row, at]), float(self._deficit_s[row, at])
                best[job] = max(found, best.get(job, found))
        return dict(sorted(best.items(), key=lambda one: (-one[1][0], -one[1][1])))

    def choose(
        self, free: Mapping[str, int], gpu_types: Sequence[str], running: Collection[Unit] = frozenset()
    ) -> list[Grant]:
        """Return who holds GPUs in the next round, in the order of choice.

        `free` counts the GPUs of each type; types are filled in the order of `gpu_types`. On each, units are taken by
        descending priority, then deficit, then share, then order of admission. It skips units that do not fit, that
        contain a job already chosen, and pairs without a share on the type. A unit without an entry in the shares runs
        only if it is in `running`.
        """
        grants: list[Grant] = []
        taken: set[str] = set()
        runs = self._allocated | np.array([unit in running for unit in self._units], dtype=bool)
        queues = self._queues(runs)
        for gpu_type in gpu_types:
            left = free.get(gpu_type, 0)
            for row in queues.get(gpu_type, ()):
                unit, gpus = self._units[row], self._num_gpus[row]
                if gpus <= left and taken.isdisjoint(unit):
                    left -= gpus
                    taken.update(unit)
                    grants.append(Grant(unit, gpu_type, gpus, bool(runs[row])))
        return grants

    def _queues(self, runs: npt.NDArray[np.bool_]) -> dict[str, list[int]]:
        """Return, by type, the rows of the units that may hold GPUs, in order of choice."""
        priority = self._priorities().T
        order = np.lexsort((-self._share.T, -self._deficit_s.T, -priority))
        may = self._may(priority, runs)
        return {gpu_type: order[at][may[at, order[at]]].tolist() for gpu_type, at in self._column.items()}

    def _may(self, priority: Floats, runs: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Return which units may hold GPUs of each type, shape (types, units)."""
        unshared = [len(unit) == 1 and not self.options.idle_without_share for unit in self._units]
        may: npt.NDArray[np.bool_] = self._able.T & ((priority > 0) | np.array(unshared, dtype=bool))
        return may if self.options.unallocated_takes_room else may & runs

    def _priorities(self) -> Floats:
        fraction = self._received_s / np.array([total_s if total_s > 0 else math.inf for total_s in self._total_s])
        due = self._share * _NEVER_RAN
        np.divide(self._share, fraction, out=due, where=fraction != 0)
        return np.where(self._share > 0, due, 0.0)

    def _open(self, num_gpus: Mapping[Unit, int], columns: Iterable[int]) -> None:
        """Admit units without shares as candidates on the types of these columns."""
        for unit, gpus in num_gpus.items():
            if unit in self._row:
                raise ValueError(f"unit {'+'.join(unit)} is known already")
            self._row[unit] = len(self._units)
            self._units.append(unit)
            self._num_gpus.append(gpus)
        fresh = np.zeros((len(num_gpus), len(self._column)))
        able = np.zeros(fresh.shape, dtype=bool)
        able[:, list(columns)] = True
        self._allocated = np.concatenate([self._allocated, np.zeros(len(num_gpus), dtype=bool)])
        self._received_s = np.concatenate([self._received_s, fresh + self.options.initial_s])
        self._deficit_s = np.concatenate([self._deficit_s, fresh])
        self._share = np.concatenate([self._share, fresh])
        self._able = np.concatenate([self._able, able])

    def _keep(self, kept: Sequence[bool]) -> None:
        self._units, self._num_gpus = list(compress(self._units, kept)), list(compress(self._num_gpus, kept))
        self._row = {unit: row for row, unit in enumerate(self._units)}
        rows = np.flatnonzero(kept)
        self._allocated, self._able = self._allocated[rows], self._able[rows]
        self._received_s, self._deficit_s, self._share = (
            values[rows] for values in (self._received_s, self._deficit_s, self._share)
        )
