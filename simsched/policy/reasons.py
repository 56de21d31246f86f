"""The record of a policy that keeps its reasons: why each job waited, started or made room, decision by decision."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from typing import NamedTuple

#: The artifact that holds the record, which `simsched explain` reads.
REASONS_FILE = "reasons.csv"


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


def reasons_text(rows: Iterable[ReasonRow]) -> str:
    """Return a record as CSV, for `Policy.artifacts`."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([ReasonRow._fields, *rows])
    return out.getvalue()
