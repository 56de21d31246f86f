"""The round mechanism: the unit whose share exceeds its received time the most runs next.

Gavel (Narayanan et al., OSDI'20), section 5: in each round a unit's priority on a GPU type is its share divided by the
fraction of that type's time that it received since shares were last computed. Shockwave (NSDI'23) uses the same.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from simsched.errors import input_error

#: Jobs that run together on the same GPUs: one id, or two for a pair.
Unit = tuple[str, ...]

#: Sorts entries of a queue: priority, deficit, share.
_by_priority = itemgetter(0, 1, 2)

#: Factor on the share of a unit that received no time at all.
_NEVER_RAN = 1e9


@dataclass(frozen=True)
class RoundOptions:
    """Settings of the mechanism, defaults as in Gavel's simulator.

    `round_s` is the length of a round and `min_reset_s` the least time between two computations of shares, both in
    seconds. `credit_s` is the time that a unit counts as received when it comes and at each reset, half a round unless
    given. `unallocated_takes_room`: a unit that came after the last computation of shares is considered and given GPUs
    like the others, but does not run. `idle_without_share`: a unit of priority 0 is not considered (FIFO policies).
    """

    round_s: float = 360.0
    min_reset_s: float = 1920.0
    credit_s: float | None = None
    unallocated_takes_room: bool = False
    idle_without_share: bool = False

    def __post_init__(self) -> None:
        """Raise `InputError` for a round of no length or a negative time."""
        if not 0 < self.round_s < math.inf:
            raise input_error("rounds", f"round_s is {self.round_s}", "give the seconds of a round, above 0")
        for name in ("min_reset_s", "credit_s"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise input_error("rounds", f"{name} is {value}", "give seconds, at least 0")

    @property
    def initial_s(self) -> float:
        """Return the seconds that a unit counts as received at a reset."""
        return self.round_s / 2.0 if self.credit_s is None else self.credit_s


class Grant(NamedTuple):
    """A unit that holds GPUs of a type in the next round; where `runs` is false they stay idle."""

    unit: Unit
    gpu_type: str
    num_gpus: int
    runs: bool


@dataclass(slots=True)
class _Account:
    unit: Unit
    num_gpus: int
    received_s: list[float]
    deficit_s: list[float]
    able: frozenset[int]
    shares: Sequence[float] | None = None


class Rounds:
    """State of the mechanism: time received by each unit on each GPU type since the last reset, deficits, shares.

    Call `add` and `remove` as jobs come and go, `receive` when a unit's part of a round has ended, `reset` with new
    shares when `due`, and `choose` for each round.
    """

    def __init__(self, gpu_types: Sequence[str], options: RoundOptions | None = None) -> None:
        """Begin without units; `gpu_types` gives the order of the entries of shares."""
        self.options = options or RoundOptions()
        self._column = {gpu_type: number for number, gpu_type in enumerate(gpu_types)}
        self._accounts: dict[Unit, _Account] = {}
        self._total_s = [0.0] * len(gpu_types)
        self._changed = False
        self.last_reset_s = 0.0

    @property
    def units(self) -> tuple[Unit, ...]:
        """List the units in the order in which they came."""
        return tuple(self._accounts)

    def __contains__(self, unit: Unit) -> bool:
        """Tell whether a unit is known."""
        return unit in self._accounts

    def add(self, unit: Unit, num_gpus: int, gpu_types: Collection[str] | None = None) -> None:
        """Admit a unit that needs `num_gpus` GPUs of one type; it has no share until the next reset.

        It is considered on `gpu_types` only, on all by default.
        """
        self._open(unit, num_gpus, gpu_types)
        self._changed = True

    def remove(self, job: str) -> None:
        """Forget a job that has ended, and every unit that it is part of."""
        for unit in [unit for unit in self._accounts if job in unit]:
            del self._accounts[unit]
        self._changed = True

    def ask_reset(self) -> None:
        """Make the next reset due although no job came or ended."""
        self._changed = True

    def receive(self, unit: Unit, gpu_type: str, seconds: float) -> None:
        """Count time that a unit has received on a GPU type; a unit that is gone counts for the type only."""
        column = self._column[gpu_type]
        self._total_s[column] += seconds
        account = self._accounts.get(unit)
        if account is not None:
            account.received_s[column] += seconds

    def received_s(self, unit: Unit, gpu_type: str) -> float:
        """Return the seconds received since the last reset, the initial credit included."""
        return self._accounts[unit].received_s[self._column[gpu_type]]

    def deficit_s(self, unit: Unit, gpu_type: str) -> float:
        """Return the seconds that a unit was owed at the last reset, summed over resets; negative where it got more."""
        return self._accounts[unit].deficit_s[self._column[gpu_type]]

    def due(self, now_s: float) -> bool:
        """Tell whether shares should be computed anew: something changed, and the last reset is long enough ago."""
        waited = now_s - self.last_reset_s >= self.options.min_reset_s or self.last_reset_s == 0
        return self._changed and waited

    def reset(self, now_s: float, shares: Mapping[Unit, Sequence[float]], num_gpus: Mapping[Unit, int]) -> None:
        """Close the books and start over with new shares.

        `shares` maps units to one share of time for each GPU type. Pairs that are not yet known are admitted with
        `num_gpus`, pairs without a share are forgotten.
        """
        self.close(now_s)
        for unit in [unit for unit in self._accounts if len(unit) > 1 and unit not in shares]:
            del self._accounts[unit]
        for unit in shares:
            if unit not in self._accounts:
                self._open(unit, num_gpus[unit])
        credit_s = self.options.initial_s
        self._total_s = [0.0] * len(self._column)
        for unit, account in self._accounts.items():
            account.shares = shares.get(unit)
            for column in range(len(self._column)):
                account.received_s[column] = credit_s
                self._total_s[column] += credit_s
        self._changed = False

    def close(self, now_s: float) -> None:
        """Add to each deficit what the shares promised since the last reset, less what was received."""
        passed_s, credit_s = now_s - self.last_reset_s, self.options.initial_s
        for account in self._accounts.values():
            shares = account.shares
            for column, received_s in enumerate(account.received_s):
                promised_s = shares[column] * passed_s if shares is not None else 0.0
                account.deficit_s[column] += promised_s - (received_s - credit_s)
        self.last_reset_s = now_s

    def priority(self, unit: Unit, gpu_type: str) -> float:
        """Return a unit's share divided by the fraction of the type's time received; 0 without a share above 0."""
        return self._priority(self._accounts[unit], self._column[gpu_type])

    def choose(
        self, free: Mapping[str, int], gpu_types: Sequence[str], running: Collection[Unit] = frozenset()
    ) -> list[Grant]:
        """Return who holds GPUs in the next round, in the order of choice.

        `free` counts the GPUs of each type; types are filled in the order of `gpu_types`. On each, units are taken by
        descending priority, then deficit, then share, then the order in which they came; those that do not fit, or have
        a job that was chosen already, are skipped, and so are pairs without a share on the type. A unit without an
        entry in the shares runs only if it is in `running`.
        """
        grants: list[Grant] = []
        taken: set[str] = set()
        for gpu_type in gpu_types:
            left = free.get(gpu_type, 0)
            if left > 0:
                self._fill(gpu_type, left, running, taken, grants)
        return grants

    def _fill(self, gpu_type: str, left: int, running: Collection[Unit], taken: set[str], grants: list[Grant]) -> None:
        column, options = self._column[gpu_type], self.options
        queue = []
        for account in self._accounts.values():
            if column in account.able and taken.isdisjoint(account.unit):
                shares = account.shares
                share = shares[column] if shares is not None else 0.0
                priority = self._priority(account, column) if share else 0.0
                queue.append((priority, account.deficit_s[column], share, account))
        queue.sort(key=_by_priority, reverse=True)
        for priority, _, _, account in queue:
            unit = account.unit
            if account.num_gpus > left:
                continue
            if priority <= 0 and (options.idle_without_share or len(unit) > 1):
                continue
            if not taken.isdisjoint(unit):
                continue
            runs = account.shares is not None or unit in running
            if not runs and not options.unallocated_takes_room:
                continue
            left -= account.num_gpus
            taken.update(unit)
            grants.append(Grant(unit, gpu_type, account.num_gpus, runs))
            if left == 0:
                break

    def _priority(self, account: _Account, column: int) -> float:
        share = 0.0 if account.shares is None else account.shares[column]
        if share <= 0:
            return 0.0
        total_s = self._total_s[column]
        fraction = account.received_s[column] / total_s if total_s > 0 else 0.0
        return share * _NEVER_RAN if fraction == 0 else share / fraction

    def _open(self, unit: Unit, num_gpus: int, gpu_types: Collection[str] | None = None) -> None:
        if unit in self._accounts:
            message = f"unit {'+'.join(unit)} is known already"
            raise ValueError(message)
        count = len(self._column)
        able = self._column if gpu_types is None else gpu_types
        columns = frozenset(self._column[gpu_type] for gpu_type in able)
        self._accounts[unit] = _Account(unit, num_gpus, [self.options.initial_s] * count, [0.0] * count, columns)
