"""Steps a second of the environment on one core: 160 jobs on 64 GPUs, episodes to their end, resets included.

    python -m benchmarks.gym_speed [SECONDS]

Workloads are drawn before the clock runs, and each action is drawn from those that can be carried out. The time is
that of the processor.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from simsched.gym import SchedulingEnv

#: Jobs that know GPUs and seconds, and jobs with epochs, whose simulation alone takes most of the time.
EXPERIMENTS = ("learning/episodes", "quickstart")
SEEDS = range(1, 9)


def steps_a_second(environment: SchedulingEnv, seconds: float) -> tuple[float, float]:
    """Return steps per second, and steps per episode."""
    rng = np.random.default_rng(1)
    for seed in SEEDS:
        environment.reset(options={"seed": seed})
    begin, steps, episodes = time.process_time(), 0, 0
    while time.process_time() - begin < seconds:
        _, info = environment.reset()
        over = False
        while not over:
            masks = info["action_mask"]
            if environment.action_space.shape:
                action = rng.uniform(-1, 1, masks.size)
            else:
                action = rng.choice(np.flatnonzero(masks))
            _, _, over, _, info = environment.step(action)
            steps += 1
        episodes += 1
    return steps / (time.process_time() - begin), steps / episodes


def main(seconds: float) -> None:
    """Print a line for each experiment and kind of action."""
    for experiment in EXPERIMENTS:
        for how in ({"action": "job"}, {"action": "rule"}, {"action": "weights"}, {"action": "rule", "preempt": True}):
            speed, length = steps_a_second(SchedulingEnv(experiment, seeds=SEEDS, **how), seconds)
            print(f"{experiment:20}{' '.join(map(str, how.values())):12}{speed:8.0f} steps/s, {length:.0f} an episode")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0)
