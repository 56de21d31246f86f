"""Earliest deadline first in ElasticFlow's artifact: each job takes all the GPUs that it can use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from simsched.policy import Traits

from .books import LEVELS, Account, Artifact, Books, aligned, gathered


class Edf(Artifact):
    """Plans jobs in order of deadline on the GPUs that earlier ones leave, at every arrival and end."""

    name: ClassVar[str] = "elasticflow-artifact-edf"
    traits: ClassVar[Traits] = replace(Artifact.traits, rigid=False)

    def keep(self, accounts: Sequence[Account], gpus: int) -> Books:
        """Decide at arrivals and ends, until all ends have been noticed."""
        books, coming, active = Books(), list(accounts), list[Account]()
        last_s = now_s = accounts[0].submit_s
        while True:
            for account in active:
                train(account, now_s, last_s)
            for account in sorted((one for one in active if one.end_s <= now_s), key=lambda one: one.end_s):
                books.end(account, now_s)
            active = [account for account in active if account.end_s > now_s]
            while coming and coming[0].submit_s <= now_s:
                active.append(coming.pop(0))
            active.sort(key=lambda account: account.deadline_s)
            _plan(active, gpus, now_s)
            books.turn(now_s, active)
            times_s = [account.end_s for account in active] + [account.submit_s for account in coming]
            if not times_s:
                return books
            last_s, now_s = now_s, gathered(now_s, times_s)


def train(account: Account, now_s: float, last_s: float) -> None:
    """Train since the last decision; a job that finishes before its predicted end ends when it finishes."""
    if not account.gpus:
        return
    trained_s = now_s - last_s - max(0, now_s - account.end_s)
    rate = account.rates[account.gpus]
    if account.left <= trained_s * rate and account.end_s > now_s:
        account.end_s = last_s + math.ceil(account.left / rate)
    account.left -= trained_s * rate


def _plan(active: Sequence[Account], gpus: int, now_s: float) -> None:
    """Find what each job gets now and when it ends, earliest deadline first."""
    free = {now_s: gpus}  # from which time on
    for account in active:
        _fill(account, free, now_s)
        if account.gpus and account.start_s is None:
            account.start_s = now_s
            account.pending_s = now_s - account.submit_s


def _fill(account: Account, free: dict[float, int], now_s: float) -> None:
    most, left = account.most_gpus(LEVELS[-1]), account.left
    times_s = sorted(free)
    for time_s, next_s in zip(times_s, [*times_s[1:], math.inf], strict=True):
        before = free[time_s]
        taken = account.floor(before, most)
        if time_s == now_s:
            account.gpus = taken
        free[time_s] -= taken
        made = account.rates[taken] * (next_s - time_s) if taken else 0.0
        if left <= made:
            account.end_s = math.ceil(time_s + left / account.rates[taken])
            free.setdefault(min(aligned(now_s, account.end_s), next_s), before)
            return
        left -= made
    raise AssertionError(f"job {account.id} never ends")
