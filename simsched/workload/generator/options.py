"""What a user may say about a generated trace."""

from __future__ import annotations

from dataclasses import dataclass

from simsched.errors import InputError, Problem, nearest
from simsched.workload.philly_statistics import WEEKDAYS

STATUS_CHOICES = ("pass", "all")


@dataclass(frozen=True)
class GeneratorOptions:
    """What to generate: `days` from a `weekday` of the week `first_week` on, at `scale` times Philly's rate of batches.

    `statuses` is `pass` for jobs that passed, as in the Pollux artifact's Philly, or `all` to add jobs that were killed
    or failed, with attempts (estimates). `cron` adds the one-minute job that Philly's tenant 11cb48 submits every ten
    minutes, about one job in eight. `jobs` ends the trace after that many and overrides `days`.
    """

    days: int = 7
    scale: float = 1.0
    weekday: str = "Mon"
    statuses: str = "pass"
    cron: bool = True
    jobs: int | None = None
    first_week: int = 0

    def check(self) -> None:
        """Raise `InputError` with everything that is out of range or unknown."""
        problems = []
        for key in ("days", "scale", "jobs"):
            value = getattr(self, key)
            if value is not None and not 0 < value < float("inf"):
                problems.append(Problem(key, f"{value} is out of range", "give a number above 0"))
        if self.first_week < 0:
            problems.append(Problem("first_week", f"{self.first_week} is out of range", "give a number from 0 on"))
        for key, value, known in (("weekday", self.weekday, WEEKDAYS), ("statuses", self.statuses, STATUS_CHOICES)):
            if value not in known:
                problems.append(Problem(key, f"'{value}' is unknown", nearest(value, known)))
        if problems:
            raise InputError(*problems)
