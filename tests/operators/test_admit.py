"""Workloads before they are submitted: `admit`, forecasts of Kubernetes' queues, and objects without names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from simsched.cli.main import cli
from simsched.errors import InputError
from simsched.manifests import objects_text, read_objects
from simsched.operators.admit import Admitted, decide, forecast_moment, moment_of
from simsched.operators.anonymise import anonymised
from simsched.operators.dump import Durations, Likeness, Past, read_dump
from tests.operators.dumps import ZERO_S, World, coverage, flavour, job, node, queue, stamp, workload, written

HOUR = 3600


def asked(folder: Path, objects: Sequence[Mapping[str, Any]], one: Mapping[str, Any], now_s: float = HOUR) -> Admitted:
    """Ask whether a job would be admitted to a cluster of these objects."""
    written(folder / "job", [one])
    dump = read_dump(written(folder / "cluster", objects), now_s=ZERO_S + now_s)
    (answer,) = decide(moment_of(dump, new=read_objects(folder / "job")))
    return answer


def small(*more: Mapping[str, Any], topology: bool = True, **spec: Any) -> list[Mapping[str, Any]]:
    """Return two nodes of 8 GPUs in a rack each, and a queue that owns them, whose rules are `spec`."""
    return [node("node-0"), node("node-1"), *flavour(topology), *queue("vision", 16, **spec), *more]


def running(name: str, hosts: Mapping[str, int], **more: Any) -> list[dict[str, Any]]:
    """Return a job of one pod on each of its hosts, and its workload."""
    (each,) = set(hosts.values())
    one = job(name, "vision", each, pods=len(hosts), **more)
    return [one, workload(one, hosts)]


def pod(name: str, host: str, gpus: int, **metadata: Any) -> dict[str, Any]:
    """Return a pod that runs on a host."""
    container = {"name": "x", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "vision", **metadata},
            "spec": {"nodeName": host, "containers": [container]}}  # fmt: skip


def test_a_workload_gets_what_is_free(tmp_path: Path) -> None:
    found = asked(tmp_path, small(*running("old", {"node-0": 6})), job("new", "vision", 4, pods=2))
    assert found.admitted
    assert found.flavours == {"a100:nvidia.com/gpu": "8"}
    assert (found.nodes, found.domains) == ({"node-1": 8}, {"rack": ("rack-1",)})
    assert found.victims == ()


def test_victims_are_named_with_their_owners(tmp_path: Path) -> None:
    full = small(*running("a", {"node-0": 8}), *running("b", {"node-1": 8}, urgent=True),
                 preemption={"withinClusterQueue": "LowerPriority"})  # fmt: skip
    found = asked(tmp_path, full, job("new", "vision", 8, urgent=True))
    assert (found.admitted, found.nodes) == (True, {"node-0": 8})
    (victim,) = found.victims
    assert (victim.workload, victim.user, victim.queue, victim.gpus) == ("vision/a", "vision", "vision", 8)
    assert victim.why.endswith("due to prioritization in the ClusterQueue")


def test_a_workload_that_waits_is_told_why(tmp_path: Path) -> None:
    full = small(*running("a", {"node-0": 8}), *running("b", {"node-1": 6}))
    found = asked(tmp_path, full, job("new", "vision", 4))
    assert not found.admitted
    assert found.reason == (
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor a100, 2 more "
        "needed. There are no candidates for preemption"
    )
    found = asked(tmp_path, full, job("new", "vision", 32))
    assert found.reason.startswith("can never run: ")


@pytest.mark.parametrize(("strategy", "admitted"), [("BestEffortFIFO", True), ("StrictFIFO", False)])
def test_a_strict_queue_blocks_behind_its_first(tmp_path: Path, strategy: str, admitted: bool) -> None:
    first = job("first", "vision", 8, pods=2)
    objects = small(*running("a", {"node-0": 8}), first, workload(first, None), queueingStrategy=strategy)
    assert asked(tmp_path, objects, job("new", "vision", 4)).admitted is admitted


def test_nodes_are_as_the_cluster_has_them(tmp_path: Path) -> None:
    """A cordoned node keeps its pods and takes none; pods of others take room; a job's pods say where it runs."""
    beside = pod("x", "node-1", 3)
    cluster = small(*running("a", {"node-0": 4}))
    cluster[0] = node("node-0", unschedulable=True)
    found = asked(tmp_path / "1", [*cluster, beside], job("new", "vision", 4))
    assert (found.admitted, found.nodes) == (True, {"node-1": 4})
    assert not asked(tmp_path / "3", [*cluster, beside], job("new", "vision", 6)).admitted

    one = job("a", "vision", 4, pods=2)
    own = [{"kind": "Job", "name": "a", "controller": True}]
    pods = [pod(f"a-{place}", "node-0", 4, ownerReferences=own) for place in range(2)]
    packed = small(one, workload(one, {"node-0": 8}, topology=False), *pods, topology=False)
    plain = job("new", "vision", 6)
    del plain["spec"]["template"]["metadata"]
    assert asked(tmp_path / "4", packed, plain).nodes == {"node-1": 6}
    assert not asked(tmp_path / "5", packed[:-2], plain).admitted  # without its pods, they are spread over both


def test_places_may_be_written_in_slices(tmp_path: Path) -> None:
    """Kueue's v1beta2 writes domains in slices with common prefixes and suffixes."""
    one = job("a", "vision", 8, pods=2)
    held = workload(one, {"node-0": 8, "node-1": 8})
    places = held["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
    del places["domains"]
    roots = {"individual": {"prefix": "node-", "roots": ["0", "1"]}}
    places["slices"] = [{"domainCount": 2, "valuesPerLevel": [roots], "podCounts": {"universal": 1}}]
    assert not asked(tmp_path / "1", small(one, held), job("new", "vision", 1)).admitted
    places["slices"][0]["domainCount"] = 3
    with pytest.raises(InputError, match="names not 3 domains"):
        asked(tmp_path / "2", small(one, held), job("new", "vision", 1))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda held: held["status"]["admission"]["podSetAssignments"][0].update(name="x"), "no pods called 'x'"),
        (
            lambda held: held["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"].update(
                domains=[{"values": ["node-9"], "count": 1}]
            ),
            "there is no node 'node-9'",
        ),
    ],
)
def test_a_torn_dump_is_refused(tmp_path: Path, spoil: Any, said: str) -> None:
    one, held = running("a", {"node-0": 8})
    spoil(held)
    with pytest.raises(InputError, match=said):
        asked(tmp_path, small(one, held), job("new", "vision", 1))


def test_pods_of_which_nothing_says_where_they_are_and_that_find_no_room_are_asked_for(tmp_path: Path) -> None:
    """Both nodes are full with 3 and 5 GPUs; one after the other, the two with 3 go to the first."""
    jobs = [job(name, "vision", gpus) for name, gpus in (("a", 3), ("b", 3), ("c", 5), ("d", 5))]
    held = [workload(one, {"node-0": gpus}, topology=False) for one, gpus in zip(jobs, (3, 3, 5, 5), strict=True)]
    with pytest.raises(InputError, match=r"vision/d is admitted, but .*; add kubectl get pods -A -o yaml"):
        asked(tmp_path, small(*jobs, *held, topology=False), job("new", "vision", 1))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return a small cluster under load that has run."""
    found = World.drawn(4, jobs=90, nodes=3, load=1.3)
    found.run(tmp_path_factory.mktemp("world"))
    return found


def test_a_cluster_goes_on_from_its_objects_as_it_did(world: World, tmp_path: Path) -> None:
    """With all durations known, what waits starts at the very seconds at which it did."""
    second = float(sorted(world.comes_s.values())[50])
    waiting = world.waiting(second)
    assert len(waiting) > 5
    later = {name: at - second for name, at in world.comes_s.items() if at > second}
    objects = [*world.objects(second), *(world.jobs[name] for name in later)]
    moment = moment_of(read_dump(written(tmp_path, objects), now_s=ZERO_S + second))
    rest = {name: world.lasts_s[name] - max(second - world.starts_s[name], 0.0) for name in world.jobs}
    simulation, policy = moment.begin(rest, later)
    starts: dict[str, float] = {}
    while (view := simulation.advance()) is not None:
        simulation.act(policy.decide(view, simulation.rng))
        starts |= {name: view.now_s for name, one in view.jobs.items() if one.running and name not in starts}
    expected = {name: world.starts_s[name] - second for name in [*waiting, *later]}
    assert {name: starts[name] for name in expected} == expected


def test_intervals_cover_what_they_say(world: World, tmp_path: Path) -> None:
    """Few jobs have ended in so young a cluster, which leaves its intervals wider than those on the page."""
    rows = coverage([world], tmp_path, moments=4, draws=12)
    ((total, inside, _),) = rows
    assert total >= 40
    assert 0.7 <= inside / total <= 0.97


def test_durations_are_those_of_the_most_similar_jobs() -> None:
    import numpy as np

    rng, like = np.random.default_rng(1), Likeness("a", "gpu", "train", 8)
    past = [Past(like, 100.0 + place) for place in range(12)]
    past += [Past(like._replace(user=f"b{place}"), 9000.0) for place in range(50)]
    durations = Durations.of(past)
    drawn = [durations.draw(like, 0.0, rng) for _ in range(200)]
    assert {round(one or 0) for one in drawn} == set(range(100, 112))
    assert all((durations.draw(like, 110.5, rng) or 0) == 111.0 for _ in range(5))  # it has run for longer than most
    assert durations.draw(like._replace(user="c", image=""), 0.0, rng) == 9000.0
    assert (durations.draw(like, 9500.0, rng) or 0) > 9500.0
    assert Durations.of(()).draw(like, 0.0, rng) is None
    # Ten of 24 ended after 100 s; the twelve that still run after 200 s end like the two that did so later.
    past = [Past(like, 100.0)] * 10 + [Past(like, 300.0)] * 2 + [Past(like, 200.0, ended=False)] * 12
    drawn = [Durations.of(past).draw(like, 0.0, rng) for _ in range(2000)]
    assert sum(one == 100.0 for one in drawn) / 2000 == pytest.approx(10 / 24, abs=0.04)
    assert sum(one == 300.0 for one in drawn) / 2000 == pytest.approx(14 / 24, abs=0.04)
    assert Durations.of((), lambda: 7.0).draw(like, 0.0, rng) == 7.0


def test_the_command_answers_in_words_and_in_json(world: World, tmp_path: Path) -> None:
    second = float(sorted(world.comes_s.values())[60])
    cluster = written(tmp_path / "cluster", world.objects(second))
    file = written(tmp_path / "job", [job("new", "team-a", 8)]) / "objects.json"
    run = CliRunner()
    at = ["--cluster", str(cluster), "--now", stamp(second)[:-1]]
    said = run.invoke(cli, ["admit", str(file), *at, "--draws", "4"], catch_exceptions=False).stdout
    assert re.search(r"new \(8 GPUs, queue gpu\): not admitted now.\n  why: .*insufficient unused quota", said)
    assert re.search(r"  when: in \d+:\d\d:\d\d \(80 % interval: \d+:", said)
    found = json.loads(run.invoke(cli, ["admit", str(file), *at, "--draws", "4", "--json"]).stdout)
    assert found["schema"] == "simsched/admit/v1"
    (one,) = found["workloads"]
    assert one["when"]["low_s"] <= one["when"]["median_s"] <= one["when"]["high_s"]
    found = json.loads(run.invoke(cli, ["forecast", str(cluster), *at[2:], "--draws", "2", "--json"]).stdout)
    assert sorted(start["workload"] for start in found["starts"]) == sorted(world.waiting(second))
    young = written(tmp_path / "young", [*small(*running("a", {"node-0": 8})), job("b", "vision", 16)])
    refused = run.invoke(cli, ["forecast", str(young)])
    assert (refused.exit_code, "no job has ended that tells how long" in refused.output) == (2, True)


def test_without_names_a_cluster_decides_alike(world: World, tmp_path: Path) -> None:
    second = float(sorted(world.comes_s.values())[60])
    words_of_it = {"team-a", "node-00", "rack-0", "job-0001", "train"}
    objects = [*world.objects(second), job("new", "team-b", 1)]
    found, words = anonymised(read_objects(written(tmp_path / "open", objects)))
    text = objects_text(found, copy=False)
    assert not [word for word in words_of_it if word in text]
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed" / "objects.json").write_text(text)
    answers = []
    for name, new in (("open", "new"), ("closed", words["new"])):
        whole = read_dump(tmp_path / name, now_s=ZERO_S + second)
        (own,) = [one for one in whole.objects if one.kind == "Job" and one.name == new]
        rest = tuple(one for one in whole.standing if one.workload.owner is not own)
        dump = replace(whole, objects=tuple(one for one in whole.objects if one is not own), standing=rest)
        moment = moment_of(dump, new=[own])
        answers.append((decide(moment)[0], forecast_moment(moment, Durations.of(dump.past), draws=2)))
    (before, whens), (after, later) = answers
    assert (after.admitted, after.gpus) == (before.admitted, before.gpus)
    assert after.nodes == {words[name]: gpus for name, gpus in before.nodes.items()}
    assert [one[3:] for one in later] == [one[3:] for one in whens]


def test_the_command_writes_what_can_be_shared(tmp_path: Path) -> None:
    cluster = written(tmp_path / "cluster", small(*running("a", {"node-0": 8})))
    out, key = tmp_path / "shared.json", tmp_path / "key.json"
    run = CliRunner()
    done = run.invoke(cli, ["anonymise", str(cluster), "--out", str(out), "--key", str(key)], catch_exceptions=False)
    assert "9 objects" in done.stdout
    assert {"vision", "node-0", "rack-1"} <= set(json.loads(key.read_text()))
    assert run.invoke(cli, ["anonymise", str(cluster), "--out", str(tmp_path / "shared.txt")]).exit_code == 2
    again = run.invoke(cli, ["admit", str(out), "--cluster", str(cluster)])
    assert again.exit_code == 2
