"""Slurm's multifactor priority: factors of a job, and fair share by the fair tree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import ordered_sum
from simsched.errors import input_error
from simsched.model.cluster import Tenant

#: Slurm's defaults, in seconds: the wait that gives the full age factor, the half-life of usage, its updates.
MAX_AGE_S = 7 * 86400.0
HALF_LIFE_S = 7 * 86400.0
UPDATE_S = 300.0


def size_factor(gpus: int, total: int, *, favour_small: bool = False) -> float:
    """Return the share of the cluster's GPUs that a job asks for; with `favour_small`, the remaining share."""
    share = gpus / total
    return 1.0 - share if favour_small else share


def relative_factor(value: float, values: Mapping[str, float]) -> float:
    """Return the priority of a partition or QOS over the highest of all; 0 if all are 0."""
    highest = max(values.values(), default=0.0)
    return value / highest if highest > 0 else 0.0


def decayed(usage: float, elapsed_s: float, half_life_s: float = HALF_LIFE_S) -> float:
    """Return a usage after decay for `elapsed_s`; a half-life of 0 keeps all of it."""
    return usage * 0.5 ** (elapsed_s / half_life_s) if half_life_s > 0 else usage


@dataclass(frozen=True)
class Account:
    """A node of the tree of accounts: its shares among its siblings; `user` marks a leaf that submits jobs."""

    name: str
    parent: str = ""
    shares: float = 1.0
    user: bool = False


@dataclass
class AccountTree:
    """The accounts of a cluster and their decayed usage in GPU-seconds.

    Usage is charged to a user and counts in all accounts above. Raises `InputError` for unknown parents, duplicate
    names and cycles.
    """

    accounts: tuple[Account, ...]
    half_life_s: float = HALF_LIFE_S
    _usage: dict[str, float] = field(default_factory=dict)
    _as_of_s: float = 0.0

    def __post_init__(self) -> None:
        """Index the tree and check it."""
        self._by_name = {account.name: account for account in self.accounts}
        if len(self._by_name) != len(self.accounts):
            raise input_error("accounts", "a name is given twice", "give every account and user its own name")
        self._children: dict[str, list[Account]] = {"": []}
        for account in self.accounts:
            if account.parent and account.parent not in self._by_name:
                raise input_error(f"account '{account.name}'", f"parent '{account.parent}' is unknown", "declare it")
            self._children.setdefault(account.parent, []).append(account)
        if sum(1 for _ in self._below("")) != len(self.accounts):
            raise input_error("accounts", "some are their own ancestors", "break the circle of parents")

    def joined(self, *accounts: Account) -> AccountTree:
        """Return the tree with additional accounts or users, keeping usage."""
        return AccountTree((*self.accounts, *accounts), self.half_life_s, self._usage, self._as_of_s)

    def _below(self, name: str) -> Iterator[Account]:
        for child in self._children.get(name, []):
            yield child
            yield from self._below(child.name)

    def advance(self, now_s: float) -> None:
        """Let the usage decay up to `now_s`; raises `ValueError` for the past."""
        if now_s < self._as_of_s:
            raise ValueError(f"usage at {now_s:g} s is asked after that at {self._as_of_s:g} s")
        for name in self._usage:
            self._usage[name] = decayed(self._usage[name], now_s - self._as_of_s, self.half_life_s)
        self._as_of_s = now_s

    def charge(self, user: str, gpu_s: float) -> None:
        """Add GPU-seconds to a user and to the accounts above."""
        for name in self._up(user):
            self._usage[name] = self._usage.get(name, 0.0) + gpu_s

    def usage(self, name: str) -> float:
        """Return the decayed GPU-seconds of an account or user."""
        return self._usage.get(name, 0.0)

    def _up(self, name: str) -> Iterator[str]:
        while name:
            yield name
            name = self._by_name[name].parent

    def _siblings(self, name: str) -> list[Account]:
        return self._children[self._by_name[name].parent]

    def _part(self, name: str) -> float:
        total = ordered_sum(account.shares for account in self._siblings(name))
        return self._by_name[name].shares / total if total > 0 else 0.0

    def level_fair_share(self, name: str) -> float:
        """Return shares over usage, both among siblings; infinite without usage, 0 without shares."""
        used = sum(self.usage(account.name) for account in self._siblings(name))
        shares = self._part(name)
        if shares == 0:
            return 0.0
        return shares * used / self.usage(name) if self.usage(name) > 0 else math.inf

    def fair_tree(self) -> dict[str, float]:
        """Return the fair-share factor of every user: its rank over the number of users.

        Siblings are visited depth first by descending level fair share. Users of equal level fair share share a rank;
        accounts of equal level are merged before their members are compared; a user goes before an equal account.
        Source: Slurm, fair tree.
        """
        users = sum(account.user for account in self.accounts)
        factors: dict[str, float] = {}
        self._visit(self._children[""], users, factors)
        return factors

    def _visit(self, siblings: list[Account], users: int, factors: dict[str, float]) -> None:
        level = {account.name: self.level_fair_share(account.name) for account in siblings}
        for value in sorted(set(level.values()), reverse=True):
            tied = [account for account in siblings if level[account.name] == value]
            rank = users - len(factors)
            for account in (account for account in tied if account.user):
                factors[account.name] = rank / users
            inside = [child for account in tied for child in self._children.get(account.name, [])]
            if inside:
                self._visit(inside, users, factors)


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
