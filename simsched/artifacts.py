"""Records that a policy keeps of a run beside its tables, by file: why jobs waited, and how quotas were used."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import NamedTuple

#: The artifact that says why each job waited, started or made room; `simsched why` reads it.
REASONS_FILE = "reasons.csv"
#: The artifact that says how queues use their quotas; figures are drawn from it.
QUOTAS_FILE = "quotas.csv"


class ReasonRow(NamedTuple):
    """What a policy decided on a job at second `time_s`, in its own words.

    `cycle` numbers its rounds of decision (empty: outside of them), `queue` is where the job waits, `event` what
    happened, `takes` what it got or would get, `borrows` whether that is more than its queue owns.
    """

    time_s: str
    cycle: str
    job_id: str
    queue: str
    event: str
    takes: str
    borrows: str
    message: str


class QuotaRow(NamedTuple):
    """How a queue stands from second `time_s` on, in GPUs: its quota, what its jobs hold, how much of it is borrowed.

    `reclaimed` counts what it has taken back from others since the start.
    """

    time_s: float
    queue: str
    quota: int
    used: int
    borrowed: int
    reclaimed: int


def rows_text(kind: type[NamedTuple], rows: Iterable[tuple[object, ...]]) -> str:
    """Return rows of a kind as CSV, for `Policy.artifacts`."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([kind._fields, *rows])
    return out.getvalue()
