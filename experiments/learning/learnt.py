"""learnt: the jobs with the largest weighted sums of features first.

`simsched learn quickstart` found the weights on the workloads of the seeds 101 to 124:
12 generations of 24 weights, 6 workloads each.
"""

from typing import ClassVar

import numpy as np

from simsched.policy import Decision, Policy, Traits, View
from simsched.policy.signals import EARLIER_RUNS
from simsched.toolkit import Score, run_in_order

#: Each feature counts from 0 to 1 (`simsched.toolkit.FEATURES`).
WEIGHTS = {
    "gpus": 0.327,
    "age_s": 0.007,
    "attained_gpu_s": 0.446,
    "running": 0.164,
    "application:bert": 0.354,
    "application:cifar10": 0.422,
    "application:deepspeech2": -0.117,
    "application:imagenet": -0.78,
    "application:ncf": 0.494,
    "application:yolov3": -0.503,
}
SCORE = Score(WEIGHTS)


class Learnt(Policy):
    """Runs the jobs with the largest scores that fit, preempting others."""

    name: ClassVar[str] = "learnt"
    traits: ClassVar[Traits] = Traits(needs={EARLIER_RUNS, *SCORE.needs}, forgets=True)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Order all jobs, and run those that fit."""
        return Decision(run_in_order(SCORE.rank(view.jobs.values()), view))
