"""What the evaluations of SLAQ (SoCC'17) and Optimus (EuroSys'18) find must come out of reduced cases, too.

SLAQ: jobs of like size, more than can be served well at once, and changes of placement that cost nothing; losses fall
sooner than under fair sharing. Optimus: foreseeing is a little worse than knowing.
"""

import numpy as np
import pandas as pd
from simsched_policies.adaptive.optimus import Optimus
from simsched_policies.adaptive.optimus_online import OptimusOnline
from simsched_policies.adaptive.slaq import Slaq
from simsched_policies.queues.fair_share import FairShare

from simsched.applications.catalogue import catalogue
from simsched.engine.options import EngineOptions
from simsched.experiment.running.cell import loss_tables
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.results.quality import lives, mean_loss
from simsched.testing.builders import run


def quality(policy, jobs):
    """Return the mean normalised loss, and the mean seconds until it has fallen by 90 and by 95 %."""
    options = EngineOptions(restart_delay_s=0)
    records = run(policy, jobs, cluster=Cluster.uniform(2, 4), applications=catalogue(), options=options)
    found = lives(pd.DataFrame(records.jobs), pd.DataFrame(records.allocations), loss_tables(jobs, catalogue()))
    return mean_loss(found), *(float(np.mean([job.time_to(share) for job in found])) for share in (0.9, 0.95))


def test_losses_of_like_jobs_fall_sooner_under_slaq():
    jobs = [JobSpec(f"job-{i}", 150 * i, 2, "cifar10", 512) for i in range(9)]
    loss, to_90, to_95 = quality(Slaq(interval_s=120), jobs)
    fair_loss, fair_90, fair_95 = quality(FairShare(interval_s=120), jobs)
    # Published: down by up to 73 %, 39 s instead of 71 s, and 68 s instead of 98 s.
    assert loss < 0.6 * fair_loss
    assert to_90 < 0.8 * fair_90
    assert to_95 < fair_95


def test_optimus_loses_little_by_foreseeing():
    kinds = (("cifar10", 1024), ("deepspeech2", 160))
    jobs = [JobSpec(f"job-{i}", 400 * i, 2, *kinds[i % 2]) for i in range(8)]
    wrong = {"convergence": "oracle", "speed": "oracle", "convergence_error": 0.2, "speed_error": 0.1}
    knowing, foreseeing, mistaken = (
        np.mean([job.jct_s for job in run(policy, jobs, applications=catalogue()).jobs])
        for policy in (Optimus(interval_s=600), OptimusOnline(), OptimusOnline(**wrong))
    )
    # Published: errors of 20 % in convergence and 10 % in speed make completion times about 15 % longer.
    assert 1 < mistaken / knowing < 1.15
    assert 1 < foreseeing / knowing < 1.15
