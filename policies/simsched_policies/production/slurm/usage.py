"""The usage of users and accounts, and the resulting fair-share factors."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from simsched.model import Tenant
from simsched_policies.production.slurm.multifactor import Account, AccountTree


class Usage:
    """The usage of all users, numbered in order of appearance; factors by Slurm's fair tree.

    Accounts are tenants with their weights as shares (default 1), below their parents; users of one account have equal
    shares.
    """

    def __init__(self, tenants: Mapping[str, Tenant], half_life_s: float) -> None:
        self._tenants = dict(tenants)
        self._accounts: set[str] = set()
        self._tree = AccountTree((), half_life_s)
        self._numbers: dict[tuple[str, str], int] = {}
        self._names: list[str] = []
        self._running: list[int] = []
        #: The time up to which usage of each user is counted.
        self._since_s: list[float] = []
        self._gpu_s: list[float] = []
        self._factors: npt.NDArray[np.float64] | None = None
        self._updated_s: float | None = None

    def number(self, tenant: str, user: str) -> int:
        """Return the number of a user of a tenant, a new one for a new user."""
        known = self._numbers.get((tenant, user))
        if known is not None:
            return known
        name = f"user {user} of {tenant}"
        self._tree = self._tree.joined(*self._new_accounts(tenant), Account(name, _account(tenant), user=True))
        self._factors = None
        self._names.append(name)
        self._running.append(0)
        self._gpu_s.append(0.0)
        self._since_s.append(0.0)
        return self._numbers.setdefault((tenant, user), len(self._numbers))

    def _new_accounts(self, tenant: str) -> list[Account]:
        """Return the accounts of a tenant and its ancestors that are not in the tree yet, topmost first."""
        new: list[Account] = []
        while tenant not in self._accounts:
            self._accounts.add(tenant)
            known = self._tenants.get(tenant, Tenant())
            new.insert(0, Account(_account(tenant), _account(known.parent) if known.parent else "", known.weight))
            if not known.parent:
                break
            tenant = known.parent
        return new

    def begin(self, user: int, gpus: int, now_s: float) -> None:
        """Record that a user now holds more GPUs."""
        self._settle(user, now_s)
        self._running[user] += gpus

    def end(self, user: int, gpus: int, now_s: float) -> None:
        """Record that a user now holds fewer GPUs."""
        self._settle(user, now_s)
        self._running[user] -= gpus

    def _settle(self, user: int, now_s: float) -> None:
        self._gpu_s[user] += self._running[user] * (now_s - self._since_s[user])
        self._since_s[user] = now_s

    def update(self, now_s: float, every_s: float) -> None:
        """Charge usage and let it decay, if the last update was `every_s` ago."""
        if self._updated_s is not None and now_s - self._updated_s < every_s:
            return
        self._updated_s = now_s
        self._tree.advance(now_s)
        for user, name in enumerate(self._names):
            self._settle(user, now_s)
            if self._gpu_s[user]:
                self._tree.charge(name, self._gpu_s[user])
                self._gpu_s[user] = 0.0
        self._factors = None

    def factors(self) -> npt.NDArray[np.float64]:
        """Return the fair-share factor of every user, by number."""
        if self._factors is None:
            found = self._tree.fair_tree()
            self._factors = np.array([found[name] for name in self._names])
        return self._factors


def _account(tenant: str) -> str:
    return f"account {tenant}"
