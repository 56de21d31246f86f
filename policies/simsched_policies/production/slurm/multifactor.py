"""Slurm's multifactor priority: factors of a job, and fair share by the fair tree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from simsched.arithmetic import ordered_sum
from simsched.errors import input_error

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
