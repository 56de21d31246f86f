"""Train MaskablePPO (Stable-Baselines3) to start jobs, and save the network as a policy file of simsched.

pip install -e '.[rl]'
python docs/examples/train_network.py --experiment learning/episodes --minutes 5 --out network.py
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.policies import MaskableMultiInputActorCriticPolicy
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import nn

from simsched.gym import CLUSTER_FEATURES, SchedulingEnv, network_text

FEATURES = ("gpus", "age_s")
TRAINING, HELD_OUT = tuple(range(101, 165)), (201, 202, 203)  # runs compare on other seeds: 1 to 16


WINDOW, RUNNING, COLUMNS, HIDDEN = 8, 4, 1 + len(FEATURES), 32
CLUSTER = len(CLUSTER_FEATURES)


def environment(experiment, seeds):
    return SchedulingEnv(experiment, action="job", features=FEATURES, window=WINDOW, running=RUNNING, seeds=seeds)


def mean_jct_h(model, env):
    hours = []
    for seed in HELD_OUT:
        (observation, info), over = env.reset(options={"seed": seed}), False
        while not over:
            action, _ = model.predict(observation, action_masks=info["action_mask"], deterministic=True)
            observation, _, over, _, info = env.step(action)
        hours.append(info["jct_mean_s"] / 3600)
    return np.mean(hours)


class PerJob(nn.Module):
    """Scores each waiting job by one network, which sees cluster and running jobs too; letting time pass comes last."""

    def __init__(self):
        super().__init__()
        self.latent_dim_pi, self.latent_dim_vf = WINDOW + 1, HIDDEN
        self.around = nn.Linear(CLUSTER + RUNNING * COLUMNS, HIDDEN)
        self.job = nn.Linear(COLUMNS, HIDDEN, bias=False)
        self.score = nn.Linear(HIDDEN, 1, bias=False)
        self.register_buffer("wait", torch.tensor([-20.0]))
        self.value = nn.Sequential(nn.Linear(CLUSTER + (WINDOW + RUNNING) * COLUMNS, HIDDEN), nn.ReLU())

    def forward(self, seen):
        return self.forward_actor(seen), self.forward_critic(seen)

    def forward_critic(self, seen):
        return self.value(seen)

    def forward_actor(self, seen):  # the parts of an observation in the order of their names: cluster, queue, running
        cluster, queue, running = seen.split([CLUSTER, WINDOW * COLUMNS, RUNNING * COLUMNS], dim=1)
        around = self.around(torch.cat([cluster, running], dim=1))
        hidden = torch.relu(self.job(queue.reshape(-1, WINDOW, COLUMNS)) + around[:, None])
        return torch.cat([self.score(hidden)[..., 0], self.wait.expand(len(seen), 1)], dim=1)

    def layers(self):
        """Write the same network as two dense layers."""
        eye, numbers = np.eye(WINDOW), {name: value.numpy() for name, value in self.state_dict().items()}
        cluster, running = np.split(numbers["around.weight"], [CLUSTER], axis=1)
        each = np.ones((WINDOW, 1))
        first = [np.kron(each, cluster), np.kron(eye, numbers["job.weight"]), np.kron(each, running)]
        second = np.vstack([np.kron(eye, numbers["score.weight"]), np.zeros((1, WINDOW * HIDDEN))])
        return [
            (np.hstack(first), np.tile(numbers["around.bias"], WINDOW)),
            (second, np.append(np.zeros(WINDOW), numbers["wait"])),
        ]


class Network(MaskableMultiInputActorCriticPolicy):
    def _build_mlp_extractor(self):
        self.mlp_extractor = PerJob()

    def _build(self, lr_schedule):
        super()._build(lr_schedule)
        self.action_net = nn.Identity()


class HeldOut(BaseCallback):
    """Prints the mean JCT on held-out seeds now and then, keeps the best network, and stops after some minutes."""

    def __init__(self, env, minutes):
        super().__init__()
        self.env, self.end_s, self.next_s, self.best = env, time.monotonic() + 60 * minutes, 0.0, (np.inf, None)
        self.every_s = 60 * minutes / 6

    def _on_step(self):
        return time.monotonic() < self.end_s

    def _on_rollout_start(self):
        if time.monotonic() >= self.next_s:
            self.look()

    def look(self):
        hours = mean_jct_h(self.model, self.env)
        print(f"{self.num_timesteps:8d} steps: {hours:.3f} h on the held-out seeds", flush=True)
        self.best = min(self.best, (hours, self.model.policy.mlp_extractor.layers()), key=lambda one: one[0])
        self.next_s = time.monotonic() + self.every_s


options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
options.add_argument("--experiment", default="learning/episodes")
options.add_argument("--minutes", type=float, default=5.0)
options.add_argument("--out", type=Path, default=Path("network.py"))
chosen = options.parse_args()

torch.set_num_threads(1)
envs = DummyVecEnv([lambda: environment(chosen.experiment, TRAINING)] * 8)
model = MaskablePPO(Network, envs, n_steps=128, batch_size=256, gamma=0.999, learning_rate=1e-3, seed=1)
heard = HeldOut(environment(chosen.experiment, HELD_OUT), chosen.minutes)
model.learn(10**9, callback=heard)
heard.look()

hours, layers = heard.best
about = f"{chosen.experiment}, {model.num_timesteps} steps of MaskablePPO, {hours:.3f} h on held-out seeds"
chosen.out.write_text(network_text(chosen.out.stem, layers, heard.env.seen, about))
kind = "".join(part.capitalize() for part in chosen.out.stem.split("_"))
print(f"{chosen.out}: try `simsched run {chosen.experiment} -o 'policies=[\"{chosen.out}:{kind}\", fifo, srtf]'`")
