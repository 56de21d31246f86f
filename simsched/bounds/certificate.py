"""The proof of a bound: jobs, prices and claims as integers, in plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from simsched.bounds.jobs import RelaxedJobs

#: Prices are whole multiples of 1 / PRICE_PARTS ticks per unit-tick.
PRICE_PARTS = 1 << 40


@dataclass(frozen=True, eq=False)
class Certificate:
    """Lower bounds for `jobs`, in ticks: on the sum of completion minus release times, and on the makespan.

    The sum follows from `prices` of the intervals that start at `starts`, the last one endless and free; or from `own`,
    prices of each job's ticks in the intervals from its release on, 0 after these; or, if `fast_machine`, from one
    machine of all GPUs. The makespan follows from the work to be done from `makespan_from` on, or from the job that
    would end last if each ran alone.
    """

    jobs: RelaxedJobs
    starts: tuple[int, ...]
    prices: tuple[int, ...]
    own: tuple[tuple[int, ...], ...]
    fast_machine: bool
    flow_sum: int
    makespan: int
    makespan_from: int

    def to_json(self) -> dict[str, Any]:
        """Return plain data: everything that the check needs."""
        jobs = self.jobs
        return {
            "release": jobs.release.tolist(),
            "work": jobs.work.tolist(),
            "rates": jobs.rates.tolist(),
            "costs": jobs.costs.tolist(),
            "cost_parts": jobs.cost_parts,
            "units": jobs.units,
            "capacity": jobs.capacity,
            "starts": list(self.starts),
            "prices": list(self.prices),
            "own": [list(prices) for prices in self.own],
            "price_parts": PRICE_PARTS,
            "fast_machine": self.fast_machine,
            "flow_sum": self.flow_sum,
            "makespan": self.makespan,
            "makespan_from": self.makespan_from,
        }
