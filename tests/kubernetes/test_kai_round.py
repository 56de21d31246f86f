"""A round of KAI-Scheduler on small clusters, worked by hand from its rules, and its own tests' tables."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simsched_policies.kubernetes.kai.division import Claim, UsageWindow, divide
from simsched_policies.kubernetes.kai.model import (
    FREE,
    UNLIMITED,
    Ask,
    Constraint,
    Held,
    Job,
    Node,
    Pod,
    Queue,
    Quota,
    Rules,
    Snapshot,
    SubGroup,
)
from simsched_policies.kubernetes.kai.round import run_round

from tests.conformance.case_reports import described, files_in, run
from tests.conformance.kai import check_file

WHOLE = Ask(gpus=1)


def claim(name: str, weight: float, request: float, quota: float = 0, limit: float = UNLIMITED, **more: float) -> Claim:
    return Claim(name, Quota(quota, limit, weight), request, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("amount", "claims", "shares"),
    [
        (100, [claim("a", 3, 100, 10), claim("b", 1, 100, 10)], {"a": 70, "b": 30}),  # the published example
        (5, [claim("a", 1, 4, 1, created_s=1), claim("b", 1, 4, 1)], {"a": 2, "b": 3}),  # the older has the odd GPU
        (10, [claim("a", 1, 10, 0, 3), claim("b", 1, 10)], {"a": 3, "b": 7}),  # a second round for what a leaves
        (6, [claim("a", 1, 6), claim("b", 9, 6, priority=50)], {"a": 6, "b": 0}),  # priority before weight
        (6, [claim("a", 0, 6, 1), claim("b", 1, 2)], {"a": 1, "b": 2}),  # without weight nothing over quota
        (4, [claim("a", 1, 4, 3), claim("b", 1, 4, 3)], {"a": 3, "b": 3}),  # deserved parts are not scaled down
        (4, [claim("a", 1, 2, UNLIMITED), claim("b", 1, 4)], {"a": 2, "b": 2}),  # an unlimited quota is all
        (16, [claim("a", 1, 32, usage=0.97), claim("b", 1, 32, usage=0.03)], {"a": 0, "b": 16}),  # 15.52: larger rest
        (16, [claim("a", 1, 32, usage=0.96), claim("b", 1, 32, usage=0.04)], {"a": 1, "b": 15}),  # 15.36: smaller rest
    ],
)
def test_a_resource_is_divided_as_by_hand(amount: float, claims: list[Claim], shares: dict[str, float]) -> None:
    assert divide(amount, claims) == shares


def test_use_is_counted_over_a_window_and_decays() -> None:
    plain, decayed = UsageWindow(100), UsageWindow(100, half_life_s=50)
    for window in (plain, decayed):
        window.note(0, 50, {"a": (0, 0, 2)}, (0, 0, 4))
        window.note(50, 100, {"b": (0, 0, 4)}, (0, 0, 4))
    assert plain.at(100)["a"] == pytest.approx((0, 0, 0.25))
    assert decayed.at(100)["a"][2] == pytest.approx(1 / 6)  # the first half weighs half as much as the second
    plain.note(100, 150, {}, (0, 0, 4))
    assert "a" not in plain.at(150)


def test_two_queues_take_turns_as_in_the_published_picture() -> None:
    """16 GPUs, window 256 and half-life 128 samples; two samples pass between the condition and the change."""
    window, runner, changes, due = UsageWindow(256, 128), "a", list[int](), -1
    for sample in range(1400):
        usage = window.at(sample)
        used = {name: usage.get(name, (0, 0, 0.0))[2] for name in "ab"}
        shares = divide(16, [claim(name, 1, 1600, usage=used[name]) for name in "ab"])
        waiting = "b" if runner == "a" else "a"
        if due < 0 and shares[waiting] >= 16:
            due = sample + 2
        if sample == due:
            runner, due = waiting, -1
            changes.append(sample)
        window.note(sample, sample + 1, {runner: (0, 0, 16)}, (0, 0, 16))
    turns = [later - earlier for earlier, later in zip(changes[-3:], changes[-2:], strict=False)]
    assert turns == pytest.approx([242, 242], abs=2)


def gpus(quota: float, weight: float = 1, limit: float = UNLIMITED) -> tuple[Quota, Quota, Quota]:
    return (FREE, FREE, Quota(quota, limit, weight))


TWO = (Queue("a", None, gpus(2)), Queue("b", None, gpus(2), created_s=1))


def job(name: str, asks: Sequence[Ask] = (WHOLE,), queue: str = "a", **more: object) -> Job:
    pods = tuple(Pod(f"{name}-{number}", ask) for number, ask in enumerate(asks))
    return replace(Job(name, queue, pods), **more)  # type: ignore[arg-type]


def nodes(*sizes: int, **more: object) -> tuple[Node, ...]:
    return tuple(replace(Node(f"n{number}", size), **more) for number, size in enumerate(sizes))  # type: ignore[arg-type]


def after(
    of: Sequence[Node],
    jobs: Sequence[Job],
    held: Mapping[str, str | Held],
    queues: Sequence[Queue] = TWO,
    topologies: Mapping[str, tuple[str, ...]] | None = None,
    now_s: float = 1000.0,
    **rules: object,
) -> dict[str, str]:
    """Return where pods are to be after a round; `held` names the nodes of those that run."""
    aged = tuple(one if one.created_s else replace(one, created_s=float(age)) for age, one in enumerate(jobs))
    places = {pod: one if isinstance(one, Held) else Held(one) for pod, one in held.items()}
    snapshot = Snapshot(tuple(of), tuple(queues), aged, places, topologies or {}, now_s=now_s)
    board = run_round(replace(snapshot, rules=Rules(**rules)))  # type: ignore[arg-type]
    seats = sorted((pod, seat.future) for pod, seat in board.seats().items() if seat.future is not None)
    return {pod: " ".join([board.room.nodes[at.node].name, *at.devices]) for pod, at in seats}


def test_a_gang_starts_whole_or_not_at_all_and_holds_up_nobody() -> None:
    jobs = [job("big", [WHOLE] * 3), job("small")]
    assert after(nodes(2), jobs, {}) == {"small-0": "n0"}
    assert after(nodes(2, 1), jobs, {}) == {"big-0": "n1", "big-1": "n0", "big-2": "n0"}


def test_an_elastic_job_starts_with_its_minimum_and_grows() -> None:
    elastic, other = job("e", [WHOLE] * 3, min_member=1), job("o", queue="b")
    assert after(nodes(2), [elastic, other], {}) == {"e-0": "n0", "o-0": "n0"}
    assert set(after(nodes(4), [elastic, other], {})) == {"e-0", "e-1", "e-2", "o-0"}


def test_jobs_move_together_to_make_room() -> None:
    jobs = [job("r0"), job("r1"), job("w", [Ask(gpus=2)])]
    held = {"r0-0": "n0", "r1-0": "n1"}
    assert after(nodes(2, 2), jobs, held) == {"r0-0": "n0", "r1-0": "n0", "w-0": "n1"}
    assert after(nodes(2, 2), jobs, held, max_consolidation_preemptees=0) == held
    assert after(nodes(2, 2), [*jobs[:2], replace(jobs[2], preemptible=False)], held) == held


def test_a_queue_takes_back_its_fair_share_and_no_more() -> None:
    running = [job(f"r{number}", queue="b") for number in range(4)]
    held = {f"r{number}-0": "n0" for number in range(4)}
    found = after(nodes(4), [*running, job("w0"), job("w1"), job("w2")], held)
    assert sorted(found) == ["r0-0", "r1-0", "w0-0", "w1-0"]  # the youngest of b go, and a stays within its share


def test_saturation_beyond_the_fair_share_of_both_is_not_reclaimed() -> None:
    """Both departments are over what they deserve: a, at 1 of its 1, would be further over its share than b."""
    queues = [Queue("a", None, gpus(1, 0)), Queue("b", None, gpus(3, 0), created_s=1)]
    jobs = [job("r", [Ask(gpus=3)], "b"), job("s"), job("w")]
    held = {"r-0": "n0", "s-0": "n0"}
    assert after(nodes(4), jobs, held, queues) == held


def test_priority_preempts_in_its_own_queue_only() -> None:
    low, high = job("low", [Ask(gpus=2)]), job("high", [Ask(gpus=2)], priority=100, preemptible=False)
    assert after(nodes(2), [low, high], {"low-0": "n0"}) == {"high-0": "n0"}
    only = [Queue("a", None, gpus(1)), TWO[1]]
    assert after(nodes(2), [low, high], {"low-0": "n0"}, only) == {"low-0": "n0"}  # not within what a deserves
    other = replace(low, queue="b")
    assert after(nodes(2), [other, replace(high, priority=125)], {"low-0": "n0"}) == {"low-0": "n0"}


def test_only_the_surplus_of_an_elastic_job_goes_while_it_is_protected() -> None:
    elastic = job("e", [WHOLE] * 3, "b", min_member=2, started_s=990.0)
    waiting = [job("w0", priority=60), job("w1")]
    held = {f"e-{number}": "n0" for number in range(3)}
    found = after(nodes(3), [elastic, *waiting], held, [TWO[0], replace(TWO[1], reclaim_min_runtime_s=60.0)])
    assert sorted(found) == ["e-0", "e-1", "w0-0"]
    free = after(nodes(3), [elastic, *waiting], held, [TWO[0], replace(TWO[1], quotas=gpus(0, 0))])
    assert sorted(free) == ["w0-0", "w1-0"]


@pytest.mark.parametrize(("method", "reclaimed"), [("lca", True), ("queue", False)])
def test_the_minimum_runtime_is_that_below_the_common_ancestor(method: str, reclaimed: bool) -> None:
    queues = [
        Queue("x", None, gpus(1), reclaim_min_runtime_s=0.0),
        Queue("y", None, gpus(1)),
        Queue("a", "y", gpus(1)),
        Queue("b", "x", gpus(0), reclaim_min_runtime_s=60.0),
    ]
    jobs = [job("r", [Ask(gpus=2)], "b", started_s=990.0), job("w")]
    found = after(nodes(2), jobs, {"r-0": "n0"}, queues, reclaim_min_runtime_by=method)
    assert found == ({"w-0": "n0"} if reclaimed else {"r-0": "n0"})


def test_a_fraction_goes_to_the_fullest_gpu_that_takes_it() -> None:
    running = [job("r0", [Ask(gpus=1, portion=0.3)]), job("r1", [Ask(gpus=1, portion=0.6)])]
    held = {"r0-0": Held("n0", ("x",)), "r1-0": Held("n0", ("y",))}

    def place(portion: float, **rules: Any) -> str:
        return after(nodes(3), [*running, job("w", [Ask(gpus=1, portion=portion)])], held, **rules)["w-0"]

    assert (place(0.4), place(0.5)) == ("n0 y", "n0 x")
    assert place(0.8) not in ("n0 x", "n0 y")
    assert place(0.4, devices="spread") not in ("n0 x", "n0 y")
    assert place(0.4, max_per_device=1) not in ("n0 x", "n0 y")


def test_fractions_are_moved_onto_one_gpu_for_a_whole_one() -> None:
    halves = [job(f"h{number}", [Ask(gpus=1, portion=0.5)]) for number in range(2)]
    held = {"h0-0": Held("n0", ("x",)), "h1-0": Held("n0", ("y",))}
    assert after(nodes(2), [*halves, job("w")], held) == {"h0-0": "n0 x", "h1-0": "n0 x", "w-0": "n0"}


HALF = Ask(gpus=1, portion=0.5)
ONE = (Queue("a", None, gpus(1)), Queue("b", None, gpus(1), created_s=1))
#: Four halves of b, the youngest last, on two GPUs of a node.
HALVES_OF_B = [job(f"h{number}", [HALF], "b") for number in range(4)]
ON_TWO = {f"h{number}-0": Held("n0", ("xy"[number % 2],)) for number in range(4)}
ON_ONE = {"l0-0": Held("n0", ("x",)), "l1-0": Held("n0", ("x",))}


@pytest.mark.parametrize(
    ("of", "jobs", "held", "queues", "found"),
    [
        # a is owed one of two GPUs and asks for half of one: the youngest half of b goes, and its place is taken.
        (nodes(2), [*HALVES_OF_B, job("w", [HALF])], ON_TWO, ONE, "h0 n0 x, h1 n0 y, h2 n0 x, w n0 y"),
        # A whole GPU takes the three youngest away; the oldest of these moves onto the half that is left, two go.
        (nodes(2), [*HALVES_OF_B, job("w")], ON_TWO, ONE, "h0 n0 x, h1 n0 x, w n0"),
        # 60 of 100 units of memory fit on a GPU once both halves of y are gone; the older of these moves to x.
        (nodes(2), [*HALVES_OF_B, job("w", [Ask(gpus=1, gpu_memory=60)])], ON_TWO, ONE, "h0 n0 x, h1 n0 x, w n0 y"),
        # Two halves on two nodes are one GPU: the younger moves to the older, across nodes.
        (
            nodes(1, 1),
            [job("l0", [HALF]), job("l1", [HALF]), job("w")],
            {"l0-0": Held("n0", ("x",)), "l1-0": Held("n1", ("y",))},
            TWO,
            "l0 n0 x, l1 n0 x, w n1",
        ),
        # Of b's three GPUs one is over its share. The youngest does not empty a node; the next does, and finds no room.
        (
            nodes(2, 2),
            [*(job(f"r{number}", queue="b") for number in range(3)), job("w", [Ask(gpus=2)])],
            {"r0-0": "n0", "r1-0": "n1", "r2-0": "n0"},
            TWO,
            "r0 n0, r2 n0, w n1",
        ),
        # A guaranteed half preempts the youngest half of its queue, unless the queue deserves less than that.
        (
            nodes(1),
            [job("l0", [HALF]), job("l1", [HALF]), job("hi", [HALF], priority=100, preemptible=False)],
            ON_ONE,
            TWO,
            "hi n0 x, l0 n0 x",
        ),
        (
            nodes(1),
            [job("l0", [HALF]), job("l1", [HALF]), job("hi", [HALF], priority=100, preemptible=False)],
            ON_ONE,
            (Queue("a", None, gpus(0.4)), TWO[1]),
            "l0 n0 x, l1 n0 x",
        ),
        # Halves of two GPUs at once are one GPU for the limit of a queue, which a further half would exceed.
        (
            nodes(2),
            [job("w", [Ask(gpus=2, portion=0.5)]), job("v", [HALF])],
            {},
            [Queue("a", None, gpus(1, limit=1))],
            "w n0 shared-1 shared-2",
        ),
        # An elastic job loses what it has above its minimum, pod by pod, which empties a GPU.
        (
            nodes(2),
            [job("e", [HALF] * 4, "b", min_member=2), job("w")],
            {f"e-{number}": Held("n0", ("xy"[number // 2],)) for number in range(4)},
            ONE,
            "e n0 x, e n0 x, w n0",
        ),
        # Three halves are more than a GPU: the gang waits, and holds up nobody.
        (nodes(1), [job("g", [HALF] * 3), job("s", [HALF])], {}, TWO, "s n0 shared-2"),
        # A GPU whose part is being left is kept for the job that waits.
        (nodes(1), [job("r", [HALF]), job("w")], {"r-0": Held("n0", ("x",), releasing=True)}, TWO, "w n0"),
    ],
)
def test_parts_of_gpus_are_reclaimed_moved_and_preempted(
    of: Sequence[Node], jobs: Sequence[Job], held: Mapping[str, str | Held], queues: Sequence[Queue], found: str
) -> None:
    places = after(of, jobs, held, queues)
    assert ", ".join(f"{pod.rpartition('-')[0]} {place}" for pod, place in places.items()) == found


def test_reclaim_empties_a_whole_rack_for_a_gang_that_must_lie_in_one() -> None:
    of = [Node(f"n{number}", 2, labels={"rack": f"r{number // 2}"}) for number in range(4)]
    running = [job(f"b{number}", [Ask(gpus=2)], "b") for number in range(4)]
    gang = job("w", [Ask(gpus=2)] * 2, constraint=Constraint("t", required="rack"))
    held = {f"b{number}-0": f"n{number}" for number in range(4)}
    queues = [Queue("a", None, gpus(4)), Queue("b", None, gpus(4), created_s=1)]
    found = after(of, [*running, gang], held, queues, {"t": ("rack",)})
    assert found == {"b0-0": "n0", "b1-0": "n1", "w-0": "n2", "w-1": "n3"}


def test_memory_of_a_gpu_counts_as_a_part_of_the_smallest() -> None:
    of = [Node("n0", 1, gpu_memory=80), Node("n1", 1, gpu_memory=40)]
    half = Ask(gpus=1, gpu_memory=40)
    assert half.amounts(40) == (0, 0, 1)
    limited = [Queue("a", None, gpus(2, limit=1))]
    assert len(after(of, [job("w0", [half]), job("w1", [half])], {}, limited)) == 1
    found = after(of, [job(f"w{number}", [half]) for number in range(4)], {})
    assert sorted(place.split()[0] for place in found.values()) == ["n0", "n0", "n1"]


def test_instances_of_a_gpu_count_their_slices() -> None:
    of = [Node("n0", 0, mig=(("3g.20gb", 2),))]
    ask = Ask(mig=(("3g.20gb", 1),))
    assert ask.amounts(100) == (0, 0, 3)
    assert after(of, [job("w0", [ask]), job("w1", [ask]), job("w2", [ask])], {}, [Queue("a")]).keys() == {
        "w0-0",
        "w1-0",
    }
    assert after(of, [job("w", [Ask(mig=(("1g.5gb", 1),))])], {}, [Queue("a")]) == {}


RACKS = {"t": ("zone", "rack")}


def racked(*places: tuple[int, str, str]) -> list[Node]:
    return [Node(f"n{i}", size, labels={"zone": zone, "rack": rack}) for i, (size, zone, rack) in enumerate(places)]


def test_a_required_level_holds_all_pods_and_the_fullest_domain_goes_first() -> None:
    of = racked((2, "z", "r1"), (1, "z", "r1"), (4, "z", "r2"))
    three = job("w", [WHOLE] * 3, constraint=Constraint("t", required="rack"))
    assert set(after(of, [three], {}, topologies=RACKS).values()) == {"n0", "n1"}
    four = job("w", [WHOLE] * 4, constraint=Constraint("t", required="rack"))
    assert set(after(of, [four], {}, topologies=RACKS).values()) == {"n2"}
    five = job("w", [WHOLE] * 5, constraint=Constraint("t", required="rack"))
    assert after(of, [five], {}, [Queue("a")], topologies=RACKS) == {}
    wider = replace(five, constraint=Constraint("t", required="zone", preferred="rack"))
    found = after(of, [wider], {}, [Queue("a")], topologies=RACKS)
    assert sorted(found.values()).count("n2") == 4  # the rack with more room is liked better


def test_pods_that_follow_stay_in_the_domain_of_those_that_run() -> None:
    of = racked((2, "z", "r1"), (4, "z", "r2"))
    grows = job("w", [WHOLE] * 3, min_member=1, constraint=Constraint("t", required="rack"))
    assert after(of, [grows], {"w-0": "n0"}, topologies=RACKS) == {"w-0": "n0", "w-1": "n0"}


def test_sub_groups_have_their_own_minima_and_domains() -> None:
    of = racked((2, "z", "r1"), (2, "z", "r2"))
    rack = Constraint("t", required="rack")
    groups = (SubGroup("p", 2, constraint=rack), SubGroup("q", 2, constraint=rack))
    pods = tuple(Pod(f"w-{number}", WHOLE, "pq"[number % 2]) for number in range(4))
    split = Job("w", "a", pods, groups=groups, constraint=Constraint("t", required="zone"))
    found = after(of, [split], {}, [Queue("a")], topologies=RACKS)
    assert found["w-0"] == found["w-2"] != found["w-1"] == found["w-3"]
    assert after(of, [replace(split, constraint=rack)], {}, [Queue("a")], topologies=RACKS) == {}


def test_a_gang_that_lost_a_pod_goes_once_it_is_stale() -> None:
    broken = job("w", [WHOLE, Ask(gpus=8)], stale_since_s=950.0)
    assert after(nodes(4), [broken], {"w-0": "n0"}, now_s=1000.0) == {"w-0": "n0"}
    assert after(nodes(4), [broken], {"w-0": "n0"}, now_s=1010.0) == {}
    assert after(nodes(4), [broken], {"w-0": "n0"}, now_s=1010.0, staleness_grace_s=-1.0) == {"w-0": "n0"}


def test_spread_takes_the_emptier_node_and_binpack_the_fuller() -> None:
    jobs, held = [job("r"), job("w")], {"r-0": "n1"}
    assert after(nodes(2, 2), jobs, held)["w-0"] == "n1"
    assert after(nodes(2, 2), jobs, held, placement="spread")["w-0"] == "n0"


CASE: dict[str, Any] = {
    "name": "fits",
    "snapshot": {
        "nodes": [{"name": "n", "gpus": 1}],
        "queues": [{"name": "q"}],
        "jobs": [{"id": "j", "queue": "q", "pods": [{"id": "j-0", "ask": {"gpus": 1}}]}],
    },
    "jobs": {"j": {"status": "Running", "node": "n", "gpus": 1}},
}


@pytest.mark.parametrize(
    ("changed", "row", "detail", "code"),
    [
        ({}, "1 of 1 read, 1 equal, 0 different, 0 left out", "", 0),
        ({"jobs": {"j": {"status": "Pending"}}}, "1 equal", "j-0 is Running, expected Pending", 1),
        ({"jobs": {"j": {"status": "Running", "colour": 1}}}, "0 of 1 read", "left out, 1: case.jobs.j.colour", 1),
        ({"snapshot": {"nodes": [{"gpus": 1}]}}, "0 of 1 read", "left out, 1: snapshot.nodes.0.name", 1),
        ({"jobs": {}}, "0 of 1 read", "nothing is expected", 1),
    ],
)
def test_the_checker_says_what_agrees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], row: str, detail: str, code: int
) -> None:
    (tmp_path / "cases.json").write_text(json.dumps({"cases": [{**CASE, **changed}]}), encoding="utf-8")
    assert run("kai", check_file, [str(tmp_path)]) == code
    printed = capsys.readouterr().out
    assert row.replace("1 equal", "0 equal" if detail else "1 equal") in printed
    assert detail in printed


def test_the_checker_refuses_a_file_without_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "other.json"
    file.write_text('{"cases": []}', encoding="utf-8")
    assert run("kai", check_file, [str(file)]) == 2
    assert "has no 'cases'" in capsys.readouterr().err


def test_all_cases_of_kai_agree() -> None:
    reports = [check_file(path) for path in files_in([Path(__file__).resolve().parents[1] / "data" / "kai"])]
    assert tuple(map(sum, zip(*(report.counts for report in reports), strict=True))) == (81, 0, 0), described(reports)


def test_free_instances_of_a_gpu_count_in_the_search_for_victims() -> None:
    """One of two instances is free: a pod of both reclaims the other one, which is over its queue's share of one."""
    of = [Node("n0", 0, mig=(("1g.5gb", 2),))]
    one, both = Ask(mig=(("1g.5gb", 1),)), Ask(mig=(("1g.5gb", 2),))
    queues = [Queue("a", None, gpus(2)), Queue("b", None, gpus(0), created_s=1)]
    found = after(of, [job("b", [one], "b"), job("w", [both])], {"b-0": "n0"}, queues)
    assert found == {"w-0": "n0"}
