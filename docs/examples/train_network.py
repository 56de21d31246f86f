"""Train MaskablePPO (Stable-Baselines3) to start jobs, and save the network as a policy file of simsched.

pip install 'simsched[rl]'
python docs/examples/train_network.py --experiment learning/episodes --minutes 5 --out network.py
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv

from simsched.gym import SchedulingEnv, network_text

FEATURES = ("gpus", "age_s")
TRAINING, HELD_OUT = tuple(range(101, 165)), (201, 202, 203, 204)  # runs compare on other seeds: 1 to 16


def environment(experiment, seeds):
    return SchedulingEnv(experiment, action="job", features=FEATURES, window=8, running=4, seeds=seeds)


def mean_jct_h(model, env):
    hours = []
    for seed in HELD_OUT:
        (observation, info), over = env.reset(options={"seed": seed}), False
        while not over:
            action, _ = model.predict(observation, action_masks=info["action_mask"], deterministic=True)
            observation, _, over, _, info = env.step(action)
        hours.append(info["jct_mean_s"] / 3600)
    return np.mean(hours)


class HeldOut(BaseCallback):
    """Prints the mean JCT on held-out seeds now and then, keeps the best network, and stops after some minutes."""

    def __init__(self, env, minutes):
        super().__init__()
        self.env, self.end_s, self.next_s, self.best = env, time.monotonic() + 60 * minutes, 0.0, (np.inf, None)
        self.every_s = 60 * minutes / 10

    def _on_step(self):
        return time.monotonic() < self.end_s

    def _on_rollout_start(self):
        if time.monotonic() >= self.next_s:
            self.look()

    def look(self):
        hours = mean_jct_h(self.model, self.env)
        print(f"{self.num_timesteps:8d} steps: {hours:.3f} h on the held-out seeds", flush=True)
        weights = {name: value.numpy().copy() for name, value in self.model.policy.state_dict().items()}
        self.best = min(self.best, (hours, weights), key=lambda one: one[0])
        self.next_s = time.monotonic() + self.every_s


options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
options.add_argument("--experiment", default="learning/episodes")
options.add_argument("--minutes", type=float, default=5.0)
options.add_argument("--out", type=Path, default=Path("network.py"))
chosen = options.parse_args()

torch.set_num_threads(1)
envs = DummyVecEnv([lambda: environment(chosen.experiment, TRAINING)] * 8)
model = MaskablePPO(
    "MultiInputPolicy", envs, n_steps=256, batch_size=512, n_epochs=6, gamma=1.0, ent_coef=0.003, learning_rate=1e-3,
    policy_kwargs={"net_arch": [64, 64], "activation_fn": torch.nn.ReLU}, seed=1,
)  # fmt: skip
heard = HeldOut(environment(chosen.experiment, HELD_OUT), chosen.minutes)
model.learn(10**9, callback=heard)
heard.look()

hours, weights = heard.best
names = ("mlp_extractor.policy_net.0", "mlp_extractor.policy_net.2", "action_net")
layers = [(weights[f"{name}.weight"], weights[f"{name}.bias"]) for name in names]
about = f"{chosen.experiment}, {model.num_timesteps} steps of MaskablePPO, {hours:.3f} h on held-out seeds"
chosen.out.write_text(network_text(chosen.out.stem, layers, heard.env.seen, about))
kind = "".join(part.capitalize() for part in chosen.out.stem.split("_"))
print(f"{chosen.out}: try `simsched run {chosen.experiment} -o 'policies=[\"{chosen.out}:{kind}\", fifo, srtf]'`")
