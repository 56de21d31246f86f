"""The environment of Gymnasium: hand-worked episodes, what it refuses, and what a learner makes of it."""

import copy
import itertools
import math
import pickle
import runpy
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="gymnasium is not installed (extra gym)")

import gymnasium
from gymnasium.utils.env_checker import check_env

import simsched as sim
from simsched.errors import InputError
from simsched.gym import CLUSTER_FEATURES, Evolution, SchedulingEnv, evolve, network_text, policy_text
from simsched.policy import REMAINING_WORK, Decision, Policy, Traits
from simsched.testing import check_policy
from simsched.toolkit import Score, run_in_order

HOUR = 3600
#: On 4 GPUs, a takes an hour of all, b two, and c one of half of them.
JOBS = [
    {"id": "a", "num_gpus": 4, "submit_time_s": 0, "duration_s": HOUR},
    {"id": "b", "num_gpus": 4, "submit_time_s": 0, "duration_s": 2 * HOUR},
    {"id": "c", "num_gpus": 2, "submit_time_s": HOUR // 2, "duration_s": HOUR},
]
SMALL = {"workload.jobs": 20, "workload.days": 2}


def made(jobs=JOBS, cluster=(1, 4), **engine):
    engine = {"restart_delay_s": 0, **engine}
    return lambda seed, terms: sim.drive(jobs=jobs, policy=terms, cluster=cluster, seed=seed, **engine)


def small(**how):
    """Return an environment of few jobs, drawn by seed."""
    return SchedulingEnv("learning/episodes", SMALL, **how)


def played(environment, actions):
    environment.reset()
    return [environment.step(action)[1:4] for action in actions]


def jct_h(environment, seed, act):
    """Play a workload to its end, with `act` from observation and info to action; return the mean JCT in hours."""
    (shown, info), over = environment.reset(options={"seed": seed}), False
    while not over:
        shown, _, over, _, info = environment.step(act((shown, info)))
    return info["jct_mean_s"] / HOUR


@pytest.mark.parametrize(
    ("reward", "steps"),
    [
        # b runs first; a and c wait for it, then a for c, as both do not fit. Three jobs share each hour's cost.
        ("completion", [-(0.5 * 2 + 1.5 * 3) / 3, -2 / 3, -1 / 3]),  # JCTs of 4, 2 and 2.5 h
        ("waiting", [-(0.5 * 1 + 1.5 * 2) / 3, -1 / 3, 0]),
        ("slowdown", [-(0.5 * (1 + 1 / 2) + 1.5 * (1 + 1 / 2 + 1)) / 3, -2 / 3, -1 / 3]),  # 4, 1 and 2.5
        ("utilisation", [0, -0.5, 0]),
        (lambda now: len(now.waiting), [0.5 * 1 + 1.5 * 2, 1, 0]),
    ],
)
def test_an_episode_of_picks_earns_what_the_hours_cost(reward, steps):
    found = played(SchedulingEnv(made(), reward=reward, window=2), [1, 1, 0])
    assert [step[0] for step in found] == [pytest.approx(value) for value in steps]
    assert [step[1:] for step in found] == [(False, False), (False, False), (True, False)]


def test_actions_that_cannot_be_carried_out_are_replaced_and_that_is_said():
    environment = SchedulingEnv(made(JOBS[:2]), window=3)
    observation, info = environment.reset()
    assert info["action_mask"].tolist() == [True, True, False, False]  # nothing would happen if time passed
    assert environment.action_masks().tolist() == info["action_mask"].tolist()
    assert observation["queue"][:, 0].tolist() == [1, 1, 0]
    assert not info["replaced"]
    *_, info = environment.step(3)  # lets time pass: a starts instead
    assert info["replaced"]
    assert (info["time_s"], info["action_mask"].tolist()) == (HOUR, [True, False, False, False])
    *_, over, _, info = environment.step(2)  # there is no third job: b starts, as time cannot pass
    assert over
    assert info["replaced"]
    assert info["jct_mean_s"] == (1 + 3) / 2 * HOUR


def test_time_passes_where_something_is_still_to_come():
    environment = SchedulingEnv(made(), window=2, reward="waiting")
    environment.reset()
    _, reward, _, _, info = environment.step(2)
    assert (info["time_s"], reward, info["replaced"]) == (HOUR / 2, -0.5 * 2 / 3, False)
    _, reward, _, _, info = environment.step(1)  # a picked job does not fit any more beside b
    assert info["time_s"] == 2.5 * HOUR


def test_nothing_is_earned_between_jobs():
    jobs = [JOBS[0], {**JOBS[1], "submit_time_s": 10 * HOUR}]
    assert [step[0] for step in played(SchedulingEnv(made(jobs)), [0, 0])] == [-1 / 2, -2 / 2]


def test_an_episode_is_truncated_at_its_horizon_and_earns_to_there():
    environment = SchedulingEnv(made(), window=2, horizon_s=1.5 * HOUR)
    assert played(environment, [1]) == [(pytest.approx(-(0.5 * 2 + 1 * 3) / 3), False, True)]
    with pytest.raises(gymnasium.error.ResetNeeded):
        environment.step(0)


def test_rules_and_weights_start_what_fits_in_their_order():
    rules = {"large": {"gpus": 1}, "small": {"gpus": -1}}
    environment = SchedulingEnv(made(), action="rule", rules=rules)
    played(environment, [0, 1, 1, 1])
    assert [job.job_id for job in environment.simulation.recorder.jobs] == ["a", "c", "b"]
    environment = SchedulingEnv(made(), action="weights", features=("gpus", "age_s"))
    played(environment, [[1, 0], [1, 0], [1, 0], [0, 0]])
    assert [job.job_id for job in environment.simulation.recorder.jobs] == ["a", "b", "c"]


@dataclass
class Ordered(Policy):
    """Runs the jobs of the largest scores."""

    name: ClassVar[str] = "ordered"
    traits: ClassVar[Traits] = Traits(needs={REMAINING_WORK})

    preempt: bool = True

    def decide(self, view, rng):
        ranked = Score(WEIGHTS).rank(view.jobs.values())
        if not self.preempt:
            ranked.sort(key=lambda job: not job.running)
        return Decision(run_in_order(ranked, view))


WEIGHTS = {"gpus": -0.4, "left_s": -0.7, "running": 0.02}


@pytest.mark.parametrize("preempt", [True, False])
def test_weights_held_throughout_do_what_the_policy_with_them_does(preempt):
    jobs = [{"num_gpus": 1 + 5 * i % 8, "submit_time_s": 97 * i, "duration_s": 60 + 331 * i % 1700} for i in range(60)]
    start = made(jobs, cluster=(2, 4), restart_delay_s=30)
    environment = SchedulingEnv(start, action="weights", preempt=preempt, features=tuple(WEIGHTS))
    environment.reset()
    over, total = False, 0.0
    while not over:
        _, reward, over, _, info = environment.step(np.array(list(WEIGHTS.values())))
        total += reward
    found = sim.simulate(jobs=jobs, policy=Ordered(preempt), cluster=(2, 4), restart_delay_s=30)
    assert info["jct_mean_s"] == pytest.approx(found.jobs["jct_s"].mean(), rel=1e-12)
    assert total == pytest.approx(-found.jobs["jct_s"].mean() / HOUR, rel=1e-12)
    assert sorted(sim.results_of(environment.simulation).jobs["jct_s"]) == sorted(found.jobs["jct_s"])
    restarts = found.jobs["restarts"].sum()
    assert (restarts > 0) == preempt


def test_observations_show_the_queue_and_the_cluster():
    environment = SchedulingEnv(made(), window=2, features=("gpus", "age_s"))
    observation, _ = environment.reset()
    gpus = pytest.approx(math.log(5) / math.log(1025))
    assert observation["queue"].tolist() == [[1, gpus, 0], [1, gpus, 0]]
    jobs = pytest.approx(math.log(3) / math.log(1001))
    assert dict(zip(CLUSTER_FEATURES, observation["cluster"].tolist(), strict=True)) == {
        "free": 1, "most_free": 1, "waiting": jobs, "running": 0, "wanted": jobs, "time": 0
    }  # fmt: skip
    observation, *_ = environment.step(2)
    age = pytest.approx(math.log(1 + HOUR / 2) / math.log(1 + 30 * 24 * HOUR))
    assert observation["queue"].tolist() == [[1, gpus, age], [1, gpus, age]]
    environment = SchedulingEnv(made(), window=3, features=("left_s",), cluster_features=("free",))
    observation, _ = environment.reset()
    assert (environment.signals, observation["cluster"].tolist()) == ({REMAINING_WORK}, [1])
    assert observation["queue"].shape == (3, 2)


def test_running_jobs_can_be_seen():
    environment = SchedulingEnv(made(), window=2, running=2, features=("gpus",))
    observation, _ = environment.reset()
    assert observation["running"].tolist() == [[0, 0], [0, 0]]
    observation, *_ = environment.step(1)  # b runs, and a and c wait
    gpus = pytest.approx(math.log(5) / math.log(1025))
    assert observation["running"].tolist() == [[0, 0], [0, 0]]  # at its end, when a and c have a choice
    environment = SchedulingEnv(made([*JOBS[2:], {**JOBS[2], "id": "d", "submit_time_s": HOUR}]), running=2, window=1)
    environment.reset()
    observation, *_ = environment.step(0)  # c holds 2 of 4 GPUs when d comes
    gpus, age = (math.log(1 + number) / math.log(1 + most) for number, most in ((2, 1024), (HOUR / 2, 30 * 24 * HOUR)))
    served = math.log(1 + HOUR) / math.log(1 + 30 * 24 * HOUR * 1024)
    assert observation["running"].tolist() == [pytest.approx([1, gpus, age, served]), [0, 0, 0, 0]]
    with pytest.raises(InputError, match="running"):
        small(running=-1)


def test_a_network_saved_as_a_policy_starts_the_jobs_that_the_agent_started(tmp_path):
    chance = np.random.default_rng(2)
    environment = small(window=4, running=2, features=("gpus", "age_s"))
    sizes = (environment.observation_space["cluster"].shape[0] + (4 + 2) * 3, 8, 5)
    layers = [
        (chance.normal(size=(after, before)).astype(np.float32), chance.normal(size=after).astype(np.float32))
        for before, after in itertools.pairwise(sizes)
    ]

    def act(told):
        shown, info = told
        numbers = np.concatenate([shown["cluster"], shown["queue"].ravel(), shown["running"].ravel()])
        hidden = np.maximum(layers[0][0] @ numbers + layers[0][1], 0)
        mask = info["action_mask"]
        mask[-1] &= shown["cluster"][list(CLUSTER_FEATURES).index("running")] > 0  # no policy waits where nothing runs
        return int(np.argmax(np.where(mask, layers[1][0] @ hidden + layers[1][1], -np.inf)))

    hours = jct_h(environment, 3, act)
    path = tmp_path / "my_net.py"
    path.write_text(network_text("my-net", layers, environment.seen, "a test"))
    policy = runpy.run_path(str(path))["MyNet"]
    assert {str(one) for one in policy.traits.needs} == {"earlier_runs"}
    changes = {**SMALL, "policies": [f"{path}:MyNet"], "seeds": [3]}
    result = sim.run("learning/episodes", changes, out=tmp_path, in_process=True)
    assert result.jobs()["jct_s"].mean() / HOUR == pytest.approx(hours, rel=1e-12)
    assert not check_policy(policy)
    with pytest.raises(InputError, match="network: takes 24 numbers and gives 4"):
        network_text("my-net", [layers[0], (layers[1][0][:4], layers[1][1][:4])], environment.seen, "a test")


@pytest.mark.parametrize(
    "how", [{}, {"running": 3}, {"action": "rule"}, {"action": "weights", "preempt": True}, {"horizon_s": 9000}]
)
def test_gymnasium_finds_nothing_to_complain_about(how):
    check_env(gymnasium.make("simsched/Scheduling-v0", changes=SMALL, render_mode="ansi", **how).unwrapped)


def test_it_is_registered_and_runs_in_vectors():
    vector = gymnasium.make_vec(
        "simsched/Scheduling-v0", num_envs=2, vectorization_mode="sync", changes=SMALL, seeds=(1, 2), window=4
    )
    vector.reset(seed=3)
    for _ in range(40):  # beyond an episode: those that are over begin again
        observation, rewards, *_ = vector.step(vector.action_space.sample())
    assert observation["queue"].shape == (2, 4, 4)
    assert rewards.shape == (2,)
    vector.close()


def test_a_seed_fixes_the_workloads_and_an_option_names_one():
    environment = small(seeds=(1, 2, 3))
    drawn = [environment.reset(seed=7)[1]["seed"], *(environment.reset()[1]["seed"] for _ in range(8))]
    assert drawn == [environment.reset(seed=7)[1]["seed"], *(environment.reset()[1]["seed"] for _ in range(8))]
    assert set(drawn) == {1, 2, 3}
    assert environment.reset(options={"seed": 11})[1]["seed"] == 11
    first = environment.simulation.jobs
    environment.reset(options={"seed": 12})
    assert environment.simulation.jobs != first
    environment.reset(options={"seed": 11})
    assert environment.simulation.jobs == first


def test_it_prints_itself_where_asked_to():
    environment = SchedulingEnv(made(), window=1, render_mode="ansi")
    assert environment.render() is None
    environment.reset()
    assert environment.render().splitlines()[1:] == [
        "<view at 0 s: 2 jobs, 0 running, 4 of 4 GPUs free>", "<job a: 4 GPUs, waits>"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"action": "pick"}, "no kind 'pick'"),
        ({"reward": "complection"}, "completion"),
        ({"features": ("gpu",)}, "no feature 'gpu'"),
        ({"cluster_features": ("fre",)}, "no feature 'fre' of the cluster"),
        ({"window": 0}, "window"),
        ({"preempt": True}, "a job that is picked stops no other"),
        ({"seeds": ()}, "seeds"),
        ({"horizon_s": 0}, "horizon_s"),
        ({"changes": {"seeds": 2}}, "no experiment to change"),
        ({"placement": "most_free"}, "most-free"),
        ({"placement": "any", "action": "rule", "preempt": True}, "where rules preempt"),
        ({"action": "rule", "rules": {"x": {"gpu": 1}}}, "no feature 'gpu'"),
    ],
)
def test_what_cannot_be_had_is_refused(how, said):
    with pytest.raises(InputError, match=said):
        SchedulingEnv(made(), **how)


def test_experiments_whose_seeds_do_not_say_which_jobs_are_refused():
    with pytest.raises(InputError, match="sweeps"):
        SchedulingEnv("learning/episodes", {**SMALL, "sweep": {"workload.load": [1, 2]}}).reset()
    with pytest.raises(InputError, match="shards"):
        SchedulingEnv("learning/episodes", {"shards": 2}).reset()


def test_evolution_learns_to_run_short_jobs_first():
    heard = []
    search = Evolution(generations=3, population=8, episodes=2, seeds=(1, 2, 3), held_out=(4, 5))
    weights = evolve(
        "learning/episodes",
        {**SMALL, "cluster.nodes": 2, "workload.max_gpus": 8},
        features=("gpus", "left_s"),
        search=search,
        heard=lambda *told: heard.append(told),
    )
    assert [generation for generation, *_ in heard] == [1, 2, 3]
    changes = {**SMALL, "cluster.nodes": 2, "workload.max_gpus": 8}
    environment = SchedulingEnv("learning/episodes", changes, action="weights", preempt=True, features=tuple(weights))
    hours = [jct_h(environment, seed, lambda _: list(weights.values())) for seed in (4, 5)]
    assert heard[-1][2] == pytest.approx(math.sqrt(hours[0] * hours[1]))
    assert weights["left_s"] < 0


def test_a_learnt_policy_conforms(tmp_path):
    text = policy_text("my-order", {"gpus": -0.25, "left_s": -1.0}, "quickstart", Evolution())
    path = tmp_path / "my_order.py"
    path.write_text(text)
    found = runpy.run_path(str(path))
    assert found["WEIGHTS"] == {"gpus": -0.25, "left_s": -1.0}
    assert found["MyOrder"].name == "my-order"
    assert set(map(str, found["MyOrder"].traits.needs)) == {"earlier_runs", "remaining_work"}
    assert not check_policy(found["MyOrder"])


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ({"generations": 0}, "generations"),
        ({"population": 3}, "population"),
        ({"seeds": (1,), "episodes": 2}, "fewer"),
        ({"seeds": (1, 2), "episodes": 2, "held_out": (2, 3)}, "other seeds"),
    ],
)
def test_searches_that_learn_nothing_are_refused(numbers, said):
    with pytest.raises(InputError, match=said):
        Evolution(**numbers)


@pytest.mark.parametrize("action", [-1, 5, 10**30, 1.5, math.nan, "1", None, [0], np.array([0.0])])
def test_actions_out_of_range_are_refused(action):
    environment = small(window=4)
    environment.reset(seed=1)
    with pytest.raises(InputError, match="is not in Discrete"):
        environment.step(action)
    assert environment.step(np.int64(4))  # the episode goes on


@pytest.mark.parametrize("weights", [[0.5], [math.nan, 0.0], [2.0, 0.0], ["a", "b"], 0.5, [[0.5, 0.5]], [1 + 1j, 0]])
def test_weights_out_of_range_are_refused(weights):
    environment = small(action="weights", features=("gpus", "age_s"))
    environment.reset(seed=1)
    with pytest.raises(InputError, match="is not in Box"):
        environment.step(weights)
    assert environment.step([1, -1])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"window": 10**9}, "from 1 to 100000"),
        ({"window": 1.5}, "whole number"),
        ({"horizon_s": math.nan}, "horizon_s"),
        ({"rules": {"mine": {"gpus": math.nan}}, "action": "rule"}, "finite"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(how, message):
    with pytest.raises(InputError, match=message):
        small(**how)


def test_a_reward_that_is_no_number_is_refused():
    environment = SchedulingEnv(made(), reward=lambda moment: math.nan)
    environment.reset()  # all jobs but one wait for the first
    with pytest.raises(InputError, match="finite number"):
        environment.step(0)


def test_a_copy_plays_the_same_episodes():
    environment = small(window=4, rules={"mine": {"gpus": 1.0}})
    first, info = environment.reset(seed=3)
    for other in (copy.copy(environment), copy.deepcopy(environment), pickle.loads(pickle.dumps(environment))):
        assert other.simulation is None
        again, same = other.reset(seed=3)
        assert (same["seed"], again["queue"].tolist()) == (info["seed"], first["queue"].tolist())
