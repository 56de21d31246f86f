"""Themis in ElasticFlow's artifact, for workloads in which every job finds room and its program decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from simsched.errors import input_error

from .books import SLOT_S, Account, Artifact, Books, aligned


class Themis(Artifact):
    """Jobs run on their requested GPUs, from the slot after they arrive to the end of the slot in which they end."""

    name: ClassVar[str] = "elasticflow-artifact-themis"

    def keep(self, accounts: Sequence[Account], gpus: int) -> Books:
        """Decide at the slots in which a job arrives or leaves.

        Raises `InputError` if jobs ask for more GPUs than there are: the program that allocates them is not known.
        """
        books, coming, active = Books(), list(accounts), list[Account]()
        now_s = aligned(0, coming[0].submit_s)
        while coming or active:
            ended = [account for account in active if account.left <= 0]
            active = [account for account in active if account.left > 0]
            for account in ended:
                account.end_s = now_s
                books.end(account, now_s)
            came = [account for account in coming if account.submit_s <= now_s]
            coming = coming[len(came) :]
            for account in came:
                account.gpus, account.start_s, account.pending_s = account.asked_gpus, now_s, now_s - account.submit_s
            active += came
            wanted = sum(account.gpus for account in active)
            if wanted > gpus:
                message = f"{wanted} of {gpus} GPUs are wanted at {now_s:g} s, where the artifact's program decides"
                raise input_error("workload", message, "Themis is replayed only where all jobs find room")
            if ended or came:
                books.turn(now_s, active)
            for account in active:
                account.left -= SLOT_S * account.rates[account.gpus]
            now_s += SLOT_S
        return books
