import simsched as sim
from simsched.policy import Decision

jobs = [{"num_gpus": 4, "duration_s": seconds} for seconds in (600, 60)]
simulation = sim.drive(jobs=jobs, cluster=(1, 4), restart_delay_s=0)
view = simulation.advance()  # to the first decision: both jobs have arrived
print(list(view.jobs), list(view.free))
# > ['job-0', 'job-1'] [4]

short, long = simulation.fork(), simulation  # the same instant twice
for one, first in ((short, "job-1"), (long, "job-0")):
    one.act(Decision.change({first: ((0, 4),)}))
    while (view := one.advance()) is not None:
        one.act(Decision.change({job: ((0, 4),) for job in view.jobs if view.free[0] == 4}))
    print(first, "first:", sim.results_of(one).jobs["jct_s"].mean())
# > job-1 first: 360.0
# > job-0 first: 630.0
