"""The process that cancels jobs of a replay when their users did."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from simsched.policy import INPUT_FILE
from simsched.reading import read_text

#: The name of the process in an experiment.
PROCESS = f"{__name__}:withdraw"


def withdraw(site: Any, path: Annotated[str, INPUT_FILE]) -> Iterator[Any]:
    """Cancel jobs at the seconds in a file, `second,job` in each line; those that are complete by then stay so."""
    for line in read_text(Path(path)).splitlines():
        second, _, job = line.partition(",")
        yield site.timeout(int(second) - site.now_s)
        if not site.finished(job).triggered:
            site.cancel(job)


def withdrawals_text(withdrawn: Mapping[str, int]) -> str:
    """Return the content of such a file."""
    return "".join(f"{second},{job}\n" for second, job in sorted((at, job) for job, at in withdrawn.items()))
