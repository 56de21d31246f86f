"""When backfill looks at the queue, and how far: at its interval, in one go or between other business."""

from __future__ import annotations

from simsched_policies.production.slurm.options import Backfill


class Cycle:
    """The state of a cycle of backfill.

    Every `yield_s` it lets others proceed, after `jobs_per_yield` jobs. If a job came or went meanwhile, it goes on
    with its list where it `continues`, and else ends. Source: slurm.conf, bf_continue and bf_yield_interval.
    """

    def __init__(self, options: Backfill) -> None:
        self._options = options
        self._depth = 0
        #: When the cycle goes on, None where none is under way.
        self.next_s: float | None = None

    def depth(self, now_s: float, waiting: int, *, changed: bool) -> int | None:
        """Return how many of the jobs waiting have been looked at after this instant, None where backfill does not run.

        `changed` says that a job came or went since it was last asked.
        """
        options, going_on = self._options, self.next_s
        if changed and not options.continues:
            going_on = self.next_s = None
        if now_s % options.interval_s == options.offset_s:
            self._depth = 0
        elif going_on is None or now_s < going_on:
            return None
        self._depth += options.jobs_per_yield or options.max_jobs
        self.next_s = now_s + options.yield_s if self._depth < min(options.max_jobs, waiting) else None
        return min(self._depth, options.max_jobs)
