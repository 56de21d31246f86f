"""How fast a job runs with its best plan on any number of GPUs (Rubick, MLSys'25, section 5)."""

from __future__ import annotations

from simsched.model import Cluster
from simsched.model.plans import Plan
from simsched.model.topology import tightest_site
from simsched.policy import JobView
from simsched.policy.signals import PLANS

#: A GPU that adds less than this share is not worth having (the published artifact).
_LEAST_GAIN = 0.01


class PlanCurves:
    """The rates of jobs, in steps per second, with the best plan on tightly placed GPUs of a type; cached.

    A job without plans runs only on the number of GPUs that it asked for, at rate 1. Reads the signal `PLANS`.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rates: dict[tuple[str, int, str], dict[int, float]] = {}
        self._of_job: dict[tuple[str, str], dict[int, float]] = {}

    def rate(self, job: JobView, gpus: int, kind: str) -> float:
        """Return the rate on `gpus` GPUs, 0 if none of its plans fits.

        GPUs that add 1 % or less count for nothing, so equal rates show how many are enough. Beyond a node, whole nodes
        are compared.
        """
        known = self._of_job.get((job.id, kind))
        if known is not None and gpus in known:
            return known[gpus]
        plans = job[PLANS]
        if plans is None or not job.facts.runs_on(kind):
            return float(gpus >= job.num_gpus and job.facts.runs_on(kind))
        batch = job.request.batch_size
        rates = self._rates.setdefault((plans.name, batch, kind), {0: 0.0})
        self._of_job[job.id, kind] = rates
        if gpus not in rates:
            before = 0.0
            for count in self.counts(gpus, kind):
                if count not in rates:
                    try:
                        site = tightest_site(self._cluster, count, kind)
                        found = 1 / plans.best(site, batch).parts.total
                    except ValueError:  # no plan fits so few GPUs
                        found = 0.0
                    rates[count] = found if found > (1 + _LEAST_GAIN) * before else before
                before = rates[count]
        return rates[gpus]

    def counts(self, most: int, kind: str) -> list[int]:
        """Return the numbers of GPUs that are compared: those of a node, whole nodes, and `most`."""
        size = self._cluster.gpus_per_node(kind)
        return [*range(1, min(size, most) + 1), *range(2 * size, most, size), *([most] if most > size else [])]

    def enough(self, job: JobView, gpus: int, kind: str) -> int:
        """Return the fewest GPUs with the rate of `gpus` GPUs, 0 if that rate is 0."""
        rate = self.rate(job, gpus, kind)
        return next(one for one in self.counts(gpus, kind) if self.rate(job, one, kind) == rate) if rate else 0

    def more(self, job: JobView, gpus: int, most: int, kind: str) -> int | None:
        """Return the fewest GPUs, up to `most`, that run it faster than `gpus`; None if none do."""
        rate = self.rate(job, gpus, kind)
        return next((more for more in range(gpus + 1, most + 1) if self.rate(job, more, kind) > rate), None)

    def asked(self, job: JobView, kind: str) -> float:
        """Return the rate on the GPUs asked for with the plan asked for, which a guaranteed job is promised.

        Without a plan, or if that plan cannot run, it is the rate of the best one.
        """
        plans, plan = job[PLANS], job.request.plan
        if plans is not None and plan is not None and plans.refusal(plan, kind, job.num_gpus) is None:
            site = tightest_site(self._cluster, job.num_gpus, kind)
            return float(1 / plans.parts(plan, site, job.request.batch_size).total)
        return self.rate(job, job.num_gpus, kind)

    def rate_by(self, job: JobView, plan: Plan, kind: str) -> float:
        """Return the rate with a plan on the GPUs that it takes, 0 if it cannot run."""
        plans = job[PLANS]
        if plans is None or not job.facts.runs_on(kind):
            return 0.0
        try:
            parts = plans.parts(plan, tightest_site(self._cluster, plan.gpus, kind), job.request.batch_size)
        except ValueError:
            return 0.0
        return float(1 / parts.total)

    def plan(self, job: JobView, gpus: int, kind: str) -> Plan | None:
        """Return the best plan on `gpus` GPUs, None for a job without plans."""
        plans = job[PLANS]
        if plans is None:
            return None
        return plans.best(tightest_site(self._cluster, gpus, kind), job.request.batch_size).plan
