"""What finished jobs teach, and the file in which it is kept."""

import json

import pytest

from simsched.agent.agent import Measurement
from simsched.agent.fit import fit
from simsched.agent.goodput_agent import GoodputAgent
from simsched.agent.pool import HistoryPool, Pooled, history_of_job, merge, pool_data, pool_of, pool_text, read_pool
from simsched.errors import InputError
from simsched.model.application import BatchLimits, GradientStats, StepTime
from simsched.model.placement import Site

LIMITS = BatchLimits(128, 4096, 32, 1024)
EARLY, LATE = GradientStats(1.0, 0.5), GradientStats(1.0, 500.0)
ALONE, FOUR, EIGHT = (1, 1, 128), (1, 4, 64), (2, 8, 64)


def taught(profile=None, noise=None, limits=LIMITS, gpu_type="t4"):
    steps = {key: StepTime(*times) for key, times in (profile or {ALONE: (0.1, 0.0), FOUR: (0.08, 0.02)}).items()}
    return history_of_job(limits, {gpu_type: steps}, noise or {0: EARLY, 3: LATE})


def pool_with(**histories):
    pool = HistoryPool()
    for name, history in histories.items():
        pool.add(name, history)
    return pool


# --- merging -------------------------------------------------------------------------------------------------------


def test_a_job_that_measured_nothing_teaches_nothing():
    assert history_of_job(LIMITS, {}, {}) is None


def test_what_several_jobs_measured_is_averaged_each_job_once():
    once = taught({ALONE: (0.2, 0.0)}, {0: EARLY})
    twice = merge(taught({ALONE: (0.1, 0.0)}, {0: LATE}), taught({ALONE: (0.1, 0.0)}, {0: LATE}))
    both = merge(twice, once)
    assert both.jobs == 3
    assert both.profiles["t4"][ALONE] == pytest.approx((0.4 / 3, 0.0, 3))
    assert both.noise[0] == pytest.approx((1.0, (500 + 500 + 0.5) / 3, 3))


def test_what_only_one_of_them_measured_joins_in_ascending_order():
    both = merge(taught({EIGHT: (0.3, 0.2)}, {7: LATE}), taught({FOUR: (0.08, 0.02), ALONE: (0.1, 0.0)}, {0: EARLY}))
    assert list(both.profiles["t4"]) == [ALONE, FOUR, EIGHT]
    assert list(both.noise) == [0, 7]
    assert both.max_profiled_gpus("t4") == 8


def test_equal_times_stay_equal_to_the_digit():
    one = taught({ALONE: (0.1 + 0.2, 0.1)})
    many = one
    for _ in range(6):
        many = merge(many, one)
    assert many.profiles["t4"][ALONE] == Pooled(0.1 + 0.2, 0.1, 7)


def test_the_order_of_merging_does_not_matter_but_for_rounding():
    parts = [taught({ALONE: (0.1 * n, 0.0), (1, n, 64): (0.1, 0.05)}, {n: EARLY}) for n in (2, 3, 4)]
    forth, back = merge(merge(parts[0], parts[1]), parts[2]), merge(parts[2], merge(parts[1], parts[0]))
    assert list(forth.profiles["t4"]) == list(back.profiles["t4"])
    for key, step in forth.profiles["t4"].items():
        assert step == pytest.approx(back.profiles["t4"][key])


def test_other_batch_limits_cannot_be_merged_and_replace_what_was_known():
    other = taught(limits=BatchLimits(64, 4096, 32, 1024))
    with pytest.raises(ValueError, match="different batch limits"):
        merge(taught(), other)
    pool = pool_with(a=taught())
    pool.add("a", other)
    assert pool["a"] == other
    assert pool.lookup("a", LIMITS) == {}


# --- looking up ----------------------------------------------------------------------------------------------------


def test_a_new_job_starts_from_all_that_is_known_of_its_application():
    pool = pool_with(a=taught(), b=taught({ALONE: (9.0, 0.0)}))
    pool.add("a", taught({EIGHT: (0.3, 0.2)}))
    prior = pool.lookup("a", LIMITS)["t4"]
    assert dict(prior.profile) == {ALONE: (0.1, 0.0), FOUR: (0.08, 0.02), EIGHT: (0.3, 0.2)}
    assert prior.params == fit(prior.profile).params
    assert prior.gradient == EARLY
    assert prior.max_profiled_gpus == 8
    assert pool.lookup("c", LIMITS) == {}
    assert (pool.jobs, pool.applications) == (3, ("a", "b"))


def test_the_noise_is_that_of_the_last_epoch_seen():
    history = taught(noise={1: EARLY, 5: LATE, 9: EARLY})  # ten epochs
    assert [history.gradient_at(p) for p in (0, 0.15, 0.49, 0.5, 0.89, 0.9)] == [EARLY, EARLY, EARLY, LATE, LATE, EARLY]


def seen(gpus=1, step=0.15, local_bsz=128):
    return Measurement(Site((gpus,), "t4"), local_bsz, StepTime(step, 0.0), LATE)


def test_an_unknown_application_borrows_from_a_similar_one_at_its_own_pace():
    pool = pool_with(a=taught())
    near = BatchLimits(100, 4096, 32, 512)
    expected_s = float(pool.params("a", "t4").step_time_s(1, 1, 128))
    prior = pool.similar(near, seen(step=1.5 * expected_s))
    assert prior.max_profiled_gpus == 4
    assert prior.gradient == LATE
    step = prior.profile[FOUR]
    assert step.sync_s == 0.02
    assert step.step_s == pytest.approx(1.5 * 0.06 + 0.02)


def test_of_several_similar_ones_the_closest_pace_counts():
    pool = pool_with(a=taught({ALONE: (0.2, 0.0), FOUR: (0.2, 0.1)}), b=taught({ALONE: (0.14, 0.0), EIGHT: (0.3, 0.1)}))
    assert pool.similar(LIMITS, seen(step=0.15)).max_profiled_gpus == 8
    assert pool.similar(LIMITS, seen(step=0.19)).max_profiled_gpus == 4


@pytest.mark.parametrize(
    ("limits", "measured"),
    [
        (BatchLimits(300, 4096, 32, 1024), seen(step=0.1)),  # one limit more than twice another's
        (LIMITS, seen(step=0.21)),  # more than twice as slow
        (LIMITS, seen(step=0.049)),
        (LIMITS, seen(gpus=2, step=0.1)),  # not on one GPU
    ],
)
def test_what_differs_by_more_than_the_factor_is_not_similar(limits, measured):
    assert pool_with(a=taught({ALONE: (0.1, 0.0)})).similar(limits, measured) is None


# --- agents --------------------------------------------------------------------------------------------------------


def measure(agent, gpus=1, local_bsz=128, step=0.1, sync=0.0, gradient=EARLY, epoch=0):
    agent.observe(Measurement(Site((gpus,), "t4"), local_bsz, StepTime(step, sync), gradient, epoch))


def test_with_a_pool_an_agent_knows_its_model_and_reach_before_it_runs():
    agent = GoodputAgent(LIMITS, priors=pool_with(a=taught()).lookup("a", LIMITS))
    assert agent.goodput.on("t4").max_profiled_gpus == 4
    assert agent.goodput.on("t4").model is not None


def test_what_the_pool_knows_is_not_forgotten_at_the_first_measurement():
    prior = pool_with(a=taught()).lookup("a", LIMITS)["t4"]
    agent, fresh = GoodputAgent(LIMITS, priors={"t4": prior}), GoodputAgent(LIMITS)
    for one in (agent, fresh):
        measure(one, step=0.11)
    assert fresh.goodput.on("t4").model.params.alpha_r < 1e-7  # has never run on two GPUs, and hopes for the best
    assert agent.goodput.on("t4").model.params == fit({**prior.profile, ALONE: StepTime(0.11, 0.0)}).params
    assert agent.goodput.on("t4").max_profiled_gpus == 4


def test_a_measurement_that_confirms_the_pool_changes_no_parameter():
    prior = pool_with(a=taught()).lookup("a", LIMITS)["t4"]
    agent = GoodputAgent(LIMITS, priors={"t4": prior})
    measure(agent, step=0.1, gradient=LATE)
    assert agent.goodput.on("t4").model.params == prior.params
    assert agent.goodput.on("t4").model.gradient == LATE


def test_an_agent_tells_what_it_measured_itself_and_no_more():
    agent = GoodputAgent(LIMITS, priors=pool_with(a=taught()).lookup("a", LIMITS))
    measure(agent, epoch=0)
    measure(agent, gradient=LATE, epoch=1)
    assert agent.profiles == {"t4": {ALONE: (0.1, 0.0)}}
    assert dict(agent.noise) == {0: EARLY, 1: LATE}


def test_an_agent_without_prior_asks_for_one_at_its_first_measurement_only():
    asked = []

    def lookup(measurement):
        asked.append(measurement)
        return pool_with(a=taught()).lookup("a", LIMITS)["t4"]

    agent = GoodputAgent(LIMITS, lookup=lookup)
    assert agent.goodput.on("t4").max_profiled_gpus == 0
    measure(agent)
    measure(agent, gpus=2, local_bsz=64)
    assert len(asked) == 1
    assert agent.goodput.on("t4").max_profiled_gpus == 4


# --- the file ------------------------------------------------------------------------------------------------------


def full_pool():
    pool = pool_with(b=taught({ALONE: (1 / 3, 0.0)}), a=taught())
    pool.add("a", taught({EIGHT: (0.3, 0.2)}))
    return pool


def test_a_pool_survives_its_file(tmp_path):
    pool, path = full_pool(), tmp_path / "pool.json"
    path.write_text(pool_text(pool))
    again = read_pool(path)
    assert pool_data(again) == pool_data(pool)
    assert pool_text(again) == path.read_text()
    assert [again[name] for name in "ab"] == [pool[name] for name in "ab"]
    assert again.lookup("a", LIMITS) == pool.lookup("a", LIMITS)
    assert pool_of(json.loads(path.read_text()), "x").jobs == 3


def test_a_pool_of_one_run_is_written_with_one_configuration_a_line(tmp_path):
    assert '    ["t4", 1, 1, 128, 0.1, 0.0, 1],\n    ["t4", 1, 4, 64, 0.08, 0.02, 1]' in pool_text(full_pool())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no such file"),
        ("{\n  oops", r"pool.json:2: is not JSON.*column 3"),
        ("[]", "simsched-history/2"),
        ('{"format": "simsched-history/9"}', r"found: simsched-history/9"),
        ('{"format": "simsched-history/2"}', "no list 'applications'"),
        ('{"format": "simsched-history/2", "applications": [3]}', r"applications\[0\]: lacks the key 'name'"),
    ],
)
def test_a_file_that_is_no_pool_is_refused_with_its_place(tmp_path, text, said):
    path = tmp_path / "pool.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_pool(path)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda one: one.update(jobs=0), r"applications\[0\].jobs"),
        (lambda one: one.update(name="b"), r"applications\[1\].name: 'b' stands there twice"),
        (lambda one: one["limits"].update(max_batch_size=1.5), r"limits.max_batch_size: 1.5"),
        (lambda one: one["limits"].pop("max_batch_size"), "limits: must have just the keys"),
        (lambda one: one.update(profile=[]), "profile: must be a list of at least one row"),
        (lambda one: one["profile"][1].pop(), r"profile\[1\].*row of 6 numbers"),
        (lambda one: one["profile"].append(one["profile"][0]), r"profile\[3\].*twice"),
        (lambda one: one["profile"][0].__setitem__(4, float("nan")), r"profile\[0\].*not a number"),
        (lambda one: one["noise"][0].__setitem__(0, -1), r"noise\[0\].*whole numbers from 0"),
        (
            lambda one: one.update(profile=3),
            "profile: must be a list of .*, all of which begin with a GPU type",
        ),
        (
            lambda one: one.update(profile=[[3, 1]]),
            "profile: must be a list of .*, all of which begin with a GPU type",
        ),
        (lambda one: one.update(noise=[]), "noise: must be a list of at least one row"),
        (lambda one: one.update(jobs=True), "jobs: True is not a number of jobs"),
        (lambda one: one.update(name=3), "name: 3 is not a name"),
        (lambda one: one["limits"].update(min_local_bsz=0), "limits.min_local_bsz: 0 is not a whole number from 1 on"),
        (lambda one: one["throughput"]["t4"].update(gamma=0), "throughput.t4.gamma: 0 is not a positive number"),
        (lambda one: one["throughput"].update(x={}), "throughput: must have just the GPU types of the profile: t4"),
        (lambda one: one["profile"][0].__setitem__(-1, 0), r"a number of jobs in its last"),
        (lambda one: one["profile"][0].__setitem__(1, 0), r"whole numbers from 1 on in its first 3 places"),
        (lambda one: one["profile"][0].__setitem__(1, 9), r"on at least as many GPUs as nodes"),
        (
            lambda one: one["profile"][0].__setitem__(5, one["profile"][0][4]),
            r"a synchronisation shorter than the step",
        ),
    ],
)
def test_every_wrong_number_is_named_with_its_place(change, place):
    content = pool_data(full_pool())
    change(content["applications"][0])
    with pytest.raises(InputError, match=place):
        pool_of(content, "pool.json")


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.update(jobs=1),
        lambda one: one["limits"].update(min_local_bsz=1),
        lambda one: one["throughput"]["t4"].update(gamma=1),
        lambda one: one["profile"][0].__setitem__(5, 0),
        lambda one: one["profile"][0].__setitem__(-1, 1),
        lambda one: one["noise"][0].__setitem__(0, 0),
    ],
)
def test_the_least_that_a_number_may_be_is_read(change):
    content = pool_data(full_pool())
    change(content["applications"][0])
    assert pool_of(content, "pool.json").jobs >= 1


def test_all_problems_of_a_file_come_at_once():
    content = pool_data(full_pool())
    for one in content["applications"]:
        one["jobs"] = "many"
    with pytest.raises(InputError) as caught:
        pool_of(content, "pool.json")
    assert len(caught.value.problems) == 2
