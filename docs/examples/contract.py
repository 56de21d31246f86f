from typing import ClassVar

import simsched as sim
from simsched.policy import Decision, Policy, Traits


class Newest(Policy):
    """Runs the latest jobs, and preempts others for them."""

    name: ClassVar[str] = "newest"
    traits: ClassVar[Traits] = Traits()

    def decide(self, view, rng):
        free = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up)]
        held = {}
        for job in sorted(view.jobs.values(), key=lambda job: -job.request.submit_time_s):
            node = max(range(len(free)), key=free.__getitem__)
            if job.num_gpus <= free[node]:
                free[node] -= job.num_gpus
                held[job.id] = ((node, job.num_gpus),)
        return Decision(held)


jobs = [{"num_gpus": 4, "submit_time_s": 100 * i, "duration_s": 300} for i in range(2)]
found = sim.simulate(jobs=jobs, policy=Newest, cluster=(1, 4), restart_delay_s=0)
print(found.jobs[["job_id", "jct_s", "restarts"]].to_string(index=False))
# > job_id  jct_s  restarts
# >  job-1  300.0         0
# >  job-0  600.0         1
