"""Programs of shares against closed forms, hand-worked cases, brute force, and each other under permutations."""

import itertools
from random import Random

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.toolkit.programs.baselines import RandomPacking, allox, candidates, partitioned
from simsched.toolkit.programs.objectives import makespan, max_min, total_throughput
from simsched.toolkit.programs.problem import Pairs, ShareProblem, gandiva_fair, isolated, pairs_of_kinds, proportional
from simsched.toolkit.programs.water_filling import Elapsed, Entities, finish_time, finish_time_ratio, water_filling
from tests.validation.oracles.objectives import fair_value, makespan_value


def problem_of(seed, jobs=12, types=3, *, pairs=False, weighted=True):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 4, jobs)
    speed = rng.uniform(0.2, 3.0, (4, types))
    scale = rng.choice([1, 2], jobs)
    weights = rng.choice([1.0, 2.0], jobs) if weighted else np.ones(jobs)
    both = None
    if pairs:
        share = rng.uniform(0.3, 0.9, (4, 4, 1))
        both = pairs_of_kinds(kinds, scale, speed[:, None, :] * share)
    return ShareProblem(speed[kinds], scale, np.array([2, 3, 3])[:types], weights, both, kinds)


def check_feasible(problem, shares):
    jobs = problem.num_jobs
    time = shares[:jobs].sum(axis=1)
    held = problem.scale_factor @ shares[:jobs]
    if problem.pairs is not None:
        for side in (0, 1):
            np.add.at(time, problem.pairs.jobs[:, side], shares[jobs:].sum(axis=1))
        held = held + problem.scale_factor[problem.pairs.jobs[:, 0]] @ shares[jobs:]
    assert (shares >= 0).all()
    assert (time <= 1 + 1e-6).all()
    assert (held <= problem.num_gpus + 1e-5).all()


# Homogeneous clusters have a closed form: x_i = t / scale_factor_i, t = min(GPUs / jobs, least scale factor).
@pytest.mark.parametrize(("scale", "gpus"), [([1, 1, 1], 2), ([1, 2, 4, 1], 3), ([2, 4, 8], 100), ([1], 5)])
def test_max_min_on_one_type(scale, gpus):
    scale = np.array(scale)
    problem = ShareProblem(np.ones((len(scale), 1)), scale, np.array([gpus]))
    level = min(gpus / len(scale), scale.min())
    assert fair_value(problem, max_min(problem)) == pytest.approx(level, rel=1e-7)
    assert max_min(problem)[:, 0] == pytest.approx(level / scale, abs=1e-7)


def test_max_min_trades_types_by_hand():
    # One GPU of each type. Normalised rates: A gets 1.6 on the first and .4 on the second, B gets 1 on both. B has 1
    # only if it has all its time; then A has 1 too, and takes least time for it on the first type: 1 / 1.6.
    problem = ShareProblem(np.array([[4.0, 1.0], [3.0, 3.0]]), np.array([1, 1]), np.array([1, 1]))
    shares = max_min(problem)
    assert shares.sum(axis=1) == pytest.approx([1 / 1.6, 1], abs=1e-7)
    assert fair_value(problem, shares) == pytest.approx(1.0, rel=1e-7)
    # Lexicographically, A rises further: it takes the first type for good, and B keeps its 1 on the second.
    assert water_filling(problem) == pytest.approx(np.eye(2), abs=1e-7)


def test_weights_split_one_gpu():
    problem = ShareProblem(np.ones((3, 1)), np.ones(3, int), np.array([1]), np.array([1.0, 2.0, 5.0]))
    assert max_min(problem)[:, 0] == pytest.approx([1 / 8, 2 / 8, 5 / 8], abs=1e-7)


def test_water_filling_freezes_the_full_and_raises_the_rest():
    # Two GPUs, weights 1, 1, 8: the third is full at 1, the others share what is left, one half each.
    problem = ShareProblem(np.ones((3, 1)), np.ones(3, int), np.array([2]), np.array([1.0, 1.0, 8.0]))
    assert water_filling(problem)[:, 0] == pytest.approx([0.5, 0.5, 1.0], abs=1e-6)


def test_entities_split_by_weight_and_inside_by_rule():
    problem = ShareProblem(np.ones((4, 1)), np.ones(4, int), np.array([1]), np.array([1.0, 3.0, 1.0, 1.0]))
    entities = Entities(np.array([0, 0, 1, 1]), np.array([1.0, 2.0]), ["fairness", "fifo"])
    assert water_filling(problem, entities)[:, 0] == pytest.approx([1 / 12, 3 / 12, 2 / 3, 0], abs=1e-6)


@pytest.mark.parametrize("wrong", [{"rules": ["lottery"]}, {"weights": np.array([0.0])}, {"member": np.array([1])}])
def test_entities_that_make_no_sense(wrong):
    good = {"member": np.array([0]), "weights": np.array([1.0]), "rules": ["fifo"]}
    with pytest.raises(InputError):
        Entities(**(good | wrong))


def test_makespan_by_hand():
    # 10 and 30 steps at one a second on two GPUs of one type: the second job needs all of its GPU, 30 s.
    problem = ShareProblem(np.ones((2, 1)), np.ones(2, int), np.array([2]))
    steps = np.array([10.0, 30.0])
    shares = makespan(problem, steps)
    assert makespan_value(problem, steps, shares) == pytest.approx(30, rel=1e-7)
    assert shares[:, 0] == pytest.approx([1 / 3, 1], abs=1e-7)


def test_finish_time_ratios_of_jobs_that_are_done_or_cannot_run():
    problem = ShareProblem(np.array([[2.0], [2.0], [0.0], [2.0]]), np.ones(4, int), np.array([4]))
    progress = Elapsed(
        np.array([10.0, 10.0, 10.0, 0.0]), np.array([0.0, 30.0, 9.0, 0.0]), np.array([5.0, 5.0, 5.0, 0.0])
    )
    # Done: 10 s for 5 s. Half a GPU: 10 + 30 s, where a GPU of one's own takes 5 + 15 s.
    shares = np.array([[0.0], [0.5], [0.0], [0.0]])
    assert finish_time_ratio(problem, progress, shares) == pytest.approx([2.0, 2.0, np.inf, np.nan], nan_ok=True)


@pytest.mark.parametrize("name", ["age_s", "remaining_steps", "isolated_s"])
def test_negative_times_are_refused_and_none_at_all_are_not(name):
    problem, nothing = ShareProblem(np.ones((1, 1)), np.ones(1, int), np.array([1])), np.zeros(1)
    for value in (-1.0, 0.0, 0.5):
        given = {"age_s": nothing, "remaining_steps": nothing, "isolated_s": nothing, name: np.array([value])}
        if value < 0:
            with pytest.raises(InputError, match=f"{name} holds a negative number"):
                finish_time(problem, Elapsed(**given))
        else:
            assert finish_time(problem, Elapsed(**given)).shape == (1, 1)
    with pytest.raises(InputError, match="a duration is negative"):
        allox(np.array([[-1.0]]), np.array([1]))
    assert allox(np.array([[0.0], [0.5]]), np.array([1])).tolist() == [0, -1]


def test_shares_without_a_solver():
    problem = ShareProblem(np.ones((2, 2)), np.array([1, 4]), np.array([3, 1]))
    assert isolated(problem) == pytest.approx(np.array([[0.75, 0.25], [0.375, 0.125]]))
    assert proportional(problem) == pytest.approx(np.array([[0.75, 0.25]] * 2))
    many = ShareProblem(np.ones((8, 1)), np.ones(8, int), np.array([2]))
    assert gandiva_fair(many)[:, 0] == pytest.approx([0.25] * 8)


def pair_problem(both):
    pairs = Pairs(np.array([[0, 1]]), np.array([[[both], [both]]]))
    return ShareProblem(np.ones((2, 1)), np.ones(2, int), np.array([1]), pairs=pairs, kinds=np.zeros(2, int))


def test_packing_is_used_where_it_pays():
    assert max_min(pair_problem(0.8))[:, 0] == pytest.approx([0, 0, 1], abs=1e-7)
    assert max_min(pair_problem(0.4))[:, 0] == pytest.approx([0.5, 0.5, 0], abs=1e-7)


STEPS = np.random.default_rng(9).integers(5, 500, 12).astype(float)
PROGRESS = (STEPS[::-1] * 0.7, STEPS, STEPS[::-1] * 0.3)
PROGRAMS = {
    "max-min": lambda problem, order, method: max_min(problem, method),
    "water-filling": lambda problem, order, method: water_filling(problem, method=method),
    "makespan": lambda problem, order, method: makespan(problem, STEPS[order], method),
    "finish-time": lambda problem, order, method: finish_time(
        problem, Elapsed(*(part[order] for part in PROGRESS)), method
    ),
    "throughput": lambda problem, order, method: total_throughput(problem, normalised=True, method=method),
    "deadlines": lambda problem, order, method: total_throughput(problem, least_rate=STEPS[order] / 1e5, method=method),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("pairs", [False, True])
def test_the_solution_is_unique(name, pairs):
    """It does not hang on the algorithm, nor on the order in which jobs and types are listed."""
    program, jobs = PROGRAMS[name], np.arange(12)
    problem = problem_of(5, pairs=pairs)
    shares = program(problem, jobs, "highs-ds")
    check_feasible(problem, shares)
    assert program(problem, jobs, "highs-ipm") == pytest.approx(shares, abs=1e-7)
    rng = np.random.default_rng(1)
    order, types = rng.permutation(12), rng.permutation(3)
    both = None
    if problem.pairs is not None:
        place = np.argsort(order)
        both = Pairs(place[problem.pairs.jobs], problem.pairs.throughput[:, :, types])
    shuffled = ShareProblem(
        problem.throughput[order][:, types],
        problem.scale_factor[order],
        problem.num_gpus[types],
        problem.weights[order],
        both,
        problem.kinds[order],
    )
    again = program(shuffled, order, "highs-ds")
    assert again[:12] == pytest.approx(shares[:12][order][:, types], abs=1e-9)
    assert again[12:] == pytest.approx(shares[12:][:, types], abs=1e-9)


def best_total(duration_s, gpus):
    """Try every way of giving each job a GPU and a place from the end."""
    jobs = len(duration_s)
    places = [(kind, place) for kind, count in enumerate(gpus) for _ in range(count) for place in range(1, jobs + 1)]
    return min(
        sum(duration_s[job][kind] * place for job, (kind, place) in enumerate(chosen))
        for chosen in itertools.permutations(places, jobs)
    )


def finish_total(duration_s, gpus, starts):
    """Least total completion time if exactly these jobs start first on their GPUs, by trying all queues."""
    jobs = range(len(duration_s))
    slots = [kind for kind, count in enumerate(gpus) for _ in range(count)]
    best = np.inf
    for where in itertools.product(range(len(slots)), repeat=len(starts)):
        total, first = 0.0, {}
        for slot, kind in enumerate(slots):
            queue = sorted((duration_s[job][kind], job) for job in jobs if where[job] == slot)
            total += sum((len(queue) - place) * length for place, (length, _) in enumerate(queue))
            if queue:
                first[queue[0][1]] = kind
        if all(first.get(job, -1) == starts[job] for job in jobs):
            best = min(best, total)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_allox_is_least_in_total(seed):
    rng = np.random.default_rng(seed)
    duration_s, gpus = rng.integers(1, 50, (4, 2)).astype(float), np.array([1, 1 + seed % 2])
    starts = allox(duration_s, gpus)
    assert finish_total(duration_s, gpus, starts) == best_total(duration_s, gpus)


def test_allox_takes_the_oldest():
    assert list(candidates(np.array([5.0, 9.0, 7.0, 1.0]), 1, alpha=0.5)) == [1, 2]
    assert list(candidates(np.array([5.0, 9.0, 7.0, 1.0]), 3, alpha=0.5)) == [1, 2, 0]


def test_allox_skips_jobs_that_cannot_run():
    duration_s = np.array([[np.inf, 5.0], [np.inf, np.inf], [3.0, 9.0]])
    assert list(allox(duration_s, np.array([1, 1]))) == [1, -1, 0]
    assert list(allox(duration_s, np.array([1, 0]))) == [-1, -1, 0]


def rates_of(pair):
    return lambda unit: np.full(1, 10.0) if len(unit) == 1 else np.full((2, 1), pair)


def test_random_packing_packs_only_when_full():
    packing = RandomPacking(Random(0))
    sizes = {"a": 1, "b": 1, "c": 2}
    roomy = packing.shares(sizes, np.array([4]), rates_of(8.0))
    assert {unit: float(row[0]) for unit, row in roomy.items()} == {("a",): 1.0, ("b",): 1.0, ("c",): 2 / 3}
    tight = packing.shares(sizes, np.array([2]), rates_of(8.0))
    assert sorted("".join(sorted(unit)) for unit in tight) == ["ab", "c"]
    assert all(len(unit) == 1 for unit in RandomPacking(Random(0)).shares(sizes, np.array([2]), rates_of(0.0)))
    # The same units stay until a job of theirs ends.
    assert set(packing.shares(sizes, np.array([2]), rates_of(8.0))) == set(tight)
    assert set(packing.shares({"a": 1, "c": 2}, np.array([2]), rates_of(8.0))) == {("a",), ("c",)}


def test_parts_are_feasible_and_one_part_is_the_whole():
    problem = problem_of(2, pairs=True)

    def solve(part, _):
        return max_min(part)

    whole = partitioned(problem, 1, solve, np.random.default_rng(0))
    assert whole == pytest.approx(max_min(problem), abs=1e-9)
    halves = partitioned(problem, 2, solve, np.random.default_rng(0))
    check_feasible(problem, halves)
    assert 0 < fair_value(problem, halves) <= fair_value(problem, whole) + 1e-6


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_parts_have_equal_gpus_and_jobs_of_each_size_and_the_pairs_within(parts):
    problem, seen = problem_of(3, jobs=11, pairs=True), []

    def solve(part, members):
        seen.append((part, members))
        return np.concatenate([members, len(seen) * 100.0 + np.arange(len(part.pairs.jobs))])[:, None] * np.ones(3)

    shares = partitioned(problem, parts, solve, np.random.default_rng(1))
    assert sorted(np.concatenate([members for _, members in seen])) == list(range(11))
    assert shares[:11, 0].tolist() == list(range(11))
    inside = np.zeros(len(problem.pairs.jobs), bool)
    for number, (part, members) in enumerate(seen, start=1):
        assert part.num_gpus.tolist() == (problem.num_gpus / parts).tolist()
        for name in ("throughput", "scale_factor", "weights", "kinds"):
            assert getattr(part, name).tolist() == getattr(problem, name)[members].tolist()
        kept = np.isin(problem.pairs.jobs, members).all(axis=1)
        inside |= kept
        assert members[part.pairs.jobs].tolist() == problem.pairs.jobs[kept].tolist()
        assert part.pairs.throughput.tolist() == problem.pairs.throughput[kept].tolist()
        assert shares[11:][kept, 0].tolist() == [100 * number + place for place in range(kept.sum())]
    assert not shares[11:][~inside].any()
    for size in (1, 2):  # one part has at most one job more of a size than another
        counts = [(problem.scale_factor[members] == size).sum() for _, members in seen]
        assert max(counts) - min(counts) <= 1
    with pytest.raises(InputError, match="parts is 0"):
        partitioned(problem, 0, solve, np.random.default_rng(1))


def test_a_job_that_cannot_run_gets_nothing_and_harms_nobody():
    problem = ShareProblem(np.array([[0.0], [1.0]]), np.array([1, 1]), np.array([1]))
    for program in (max_min, water_filling, total_throughput):
        assert program(problem)[:, 0] == pytest.approx([0, 1], abs=1e-7)


def test_no_jobs_no_shares():
    problem = ShareProblem(np.ones((0, 2)), np.ones(0, int), np.array([1, 1]))
    for program in (max_min, water_filling, isolated, gandiva_fair, total_throughput):
        assert program(problem).shape == (0, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"throughput": np.array([[-1.0]])},
        {"scale_factor": np.array([0])},
        {"weights": np.array([0.0])},
        {"num_gpus": np.array([1, 2])},
    ],
)
def test_bad_instances_are_refused(wrong):
    good = {"throughput": np.ones((1, 1)), "scale_factor": np.array([1]), "num_gpus": np.array([1])}
    with pytest.raises(InputError, match="program"):
        ShareProblem(**(good | wrong))
