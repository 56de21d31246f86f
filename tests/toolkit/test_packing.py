"""Parts of GPUs: fragmentation, the scores of every rule, and fillings, all worked by hand; and the lists of pods."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.model.cluster import Node
from simsched.model.placement import Pod
from simsched.operators.packing import pack, read_published
from simsched.paths import data_folder
from simsched.report.figures.operators import allocation_curves
from simsched.results.statistics import estimate
from simsched.toolkit.packing.cluster import Fragments, Free, Requests, Target, request_of
from simsched.toolkit.packing.names import PUBLISHED_NAMES, RULES
from simsched.toolkit.packing.packer import Packer, fill, fit_nowhere, inflated
from simsched.workload.pods import read_nodes, read_pods

LISTS = data_folder("workloads") / "packing"


def pod(cpu: int = 1000, gpus: int = 1, milli: int = 1000, spec: str = "", *, name: str = "", memory: int = 0) -> Pod:
    return Pod(name, cpu, memory, gpus, milli, spec)


def node(gpus: int = 8, cpu: int = 64_000, name: str = "n", model: str = "", memory: int = 0) -> Node:
    return Node(0, gpus, model, name=name, cpu_milli=cpu, memory_mib=memory)


def scores(rule: str, there: list[Pod], asked: list[Pod], gpus: int = 8, cpu: int = 64_000) -> list[int | None]:
    """Put pods on the only node and return its score for each of the others."""
    packer = Packer([node(gpus, cpu)], [*there, *asked], rule)
    assert (packer.place(range(len(there))) == 0).all()
    return [packer.scores(len(there) + i)[0] for i in range(len(asked))]


def lost(weighted: list[tuple[float, Pod]], node: Node, cpu: int, gpus: list[int]) -> float:
    """Return the fragmentation of a node with so much free."""
    models = sorted({node.gpu_type, "another"})
    target = Target(
        Requests.of([request_of(one) for _, one in weighted], models), np.array([share for share, _ in weighted])
    )
    free = Free.of([node], models, 1)
    free.room.cpu_milli[0] = cpu
    free.room.gpu_milli[0] = gpus
    return float(Fragments.of(free, target).unusable[0])


def test_fragmentation_is_what_each_class_cannot_use() -> None:
    usual = [(0.5, pod(1000, 1, 600)), (0.3, pod(1000, 2)), (0.2, pod(1000, 0, 0))]
    # The first class misses the 500, the second has no two GPUs, the third wants none. Then no class has the cores;
    # then only the third cannot use what is free; then nothing is.
    assert lost(usual, node(2), 8000, [500, 1000]) == pytest.approx(0.5 * 500 + 0.5 * 1500)
    assert lost(usual, node(2), 999, [500, 1000]) == pytest.approx(1500)
    assert lost(usual, node(2), 8000, [1000, 1000]) == pytest.approx(0.2 * 2000)
    assert lost(usual, node(2), 8000, [0, 0]) == 0
    picky = [(0.5, pod(1000, 1, 600, "a|c")), *usual[1:]]
    assert lost(picky, node(2, model="b"), 8000, [1000, 1000]) == pytest.approx(0.7 * 2000)
    assert lost(picky, node(2, model="a"), 8000, [1000, 1000]) == pytest.approx(0.2 * 2000)


def test_the_target_is_the_most_frequent_requests() -> None:
    found = Target.of([pod(milli=500)] * 12 + [pod()] * 7 + [pod(gpus=8)], [""])
    assert found.requests.gpu_milli.tolist() == [500, 1000]
    assert found.share == pytest.approx([12 / 19, 7 / 19])
    # Equally frequent: by cores, then the part, then GPUs, then the text of models, the larger first.
    equal = [pod(2, 1, 300), pod(2, 2, 200), pod(2, 1, 200, "a|b"), pod(2, 1, 200, "b|a"), pod(3, 0, 0)]
    for pods in (equal, equal[::-1]):
        target = Target.of(pods, ["a"], covered=1.0).requests
        assert target.cpu_milli.tolist() == [3, 2, 2, 2, 2]
        assert target.gpu_milli.tolist() == [0, 300, 200, 200, 200]
        assert target.num_gpus.tolist() == [0, 1, 2, 1, 1]
    # Memory is no part of a request.
    assert len(Target.of([pod(memory=1), pod(memory=2)], [""], 1.0).share) == 1


def test_best_fit_and_dot_product_by_hand() -> None:
    # What is left: a quarter of the cores' scale and 3/8 of that of GPUs; the products 1/4 * 1/2 and 1/8 * 1/2.
    assert scores("best-fit", [], [pod(32_000)], gpus=4) == [68]  # 68.75
    assert scores("dot-product", [], [pod(32_000)], gpus=4) == [90]  # 90.625
    assert scores("best-fit", [], [pod(0, 0, 0), pod(0, 1, 460)], gpus=4) == [50, 52]  # 52.875
    # A node far beyond the scales gets less than 0, and the pod all the same.
    assert scores("best-fit", [], [pod(0)], gpus=32, cpu=128_000) == [-143]  # 100 (1 - 1/2 - 31/16)
    assert Packer([node(32, 128_000)], [pod(0)], "best-fit").place([0]).tolist() == [0]


def test_clustering_by_hand() -> None:
    part, whole, pair, none = pod(milli=500), pod(), pod(gpus=2), pod(0, 0, 0)
    asked = [part, whole, pair, none]
    assert scores("gpu-clustering", [], asked) == [25, 25, 25, 0]
    assert scores("gpu-clustering", [], asked, gpus=2) == [43, 43, 43, 0]  # 25 (8000 - 2000) / 8000 = 18.75
    assert scores("gpu-clustering", [none], asked) == [25, 25, 25, 0]  # a pod without GPUs is no class
    assert scores("gpu-clustering", [part], asked) == [76, 1, 1, 0]  # 25 * 500 / 8000 = 1.56
    assert scores("gpu-clustering", [part, whole], asked) == [54, 54, 4, 0]  # 25 * 1500 / 8000 = 4.69
    assert scores("gpu-clustering", [pair, pair], asked) == [12, 12, 87, 0]  # 25 * 4000 / 8000 = 12.5
    # Two GPUs of which parts are wanted are of the class of two.
    assert scores("gpu-clustering", [pod(gpus=2, milli=500)], [part, pair]) == [3, 78]  # 25 * 1000 / 8000 = 3.125


def test_packing_by_hand() -> None:
    half, none = pod(milli=500), pod(0, 0, 0)
    assert [scores("gpu-packing", [], [half], gpus=gpus)[0] for gpus in (1, 2, 8, 16, 20)] == [32, 31, 25, 17, 20]
    # A used GPU: 100 - 5, then opened ones: 50 - 1, 50 - 2, 50 - 7; eight free ones are not there.
    asked = [half, pod(milli=600), pod(gpus=2), pod(gpus=7), pod(gpus=8), none]
    assert scores("gpu-packing", [half], asked) == [95, 49, 48, 43, None, 0]
    assert scores("gpu-packing", [half], [pod(gpus=18)], gpus=20) == [33]
    assert scores("gpu-packing", [pod(milli=900)], [pod(milli=100)]) == [99]  # 100 free: 10 per cent, 1
    assert scores("gpu-packing", [pod(milli=1)], [half]) == [91]  # 999 free: 99 per cent, 9
    # Parts of two GPUs: 500 are free of each, then one has to be opened.
    pairs = [pod(gpus=2, milli=500)]
    assert scores("gpu-packing", pairs, [pod(gpus=2, milli=400), pod(gpus=3, milli=400)]) == [90, 49]
    # Of used nodes, the pods that need no GPU leave no trace: all of its GPUs are free.
    assert scores("gpu-packing", [none], [half]) == [25]


def test_fgd_spares_the_gpu_that_whole_requests_need() -> None:
    asked = [pod(milli=500), pod(), pod(milli=600), pod(gpus=2)]
    packer = Packer([node(2)], [pod(milli=500), *asked], "fgd", target=[pod()])
    packer.place([0])
    assert packer.gpu_milli == [[500, 1000]]
    # 500 are fragmented now. Onto the 500: 0, sigmoid(0.5). The whole GPU: 500 still. 600 of it: 900, sigmoid(-0.4).
    assert [packer.scores(i)[0] for i in range(1, 5)] == [62, 50, 40, None]
    packer.place([1])
    assert packer.gpu_milli == [[0, 1000]]


def test_fgd_scores_pods_without_gpus_by_the_cores_that_they_take() -> None:
    packer = Packer([node(1, cpu=2000)], [pod(1000, 0, 0), pod(1500, 0, 0)], "fgd", target=[pod(1000)])
    # The first leaves the cores that the usual pod wants; with the second the whole GPU is lost, sigmoid(-1) = 0.2689.
    assert [packer.scores(i)[0] for i in range(2)] == [50, 26]


def test_who_gets_which_gpu() -> None:
    taken = [pod(milli=100), pod(gpus=1), pod(milli=950), pod(milli=400)]
    packer = Packer([node(4)], [*taken, pod(milli=600), pod(gpus=1), pod(gpus=2, milli=5)], "best-fit")
    packer.place([0])
    assert packer.gpu_milli == [[900, 1000, 1000, 1000]]
    packer.place([1])  # the first one that is whole
    packer.place([2])  # 900 do not suffice
    packer.place([3])  # of 900 and 1,000 that with less room
    assert packer.gpu_milli == [[500, 0, 50, 1000]]
    packer.place([4])
    assert packer.gpu_milli == [[500, 0, 50, 400]]
    packer.place([6])  # parts of two: the two with least room
    assert packer.gpu_milli == [[500, 0, 45, 395]]
    assert packer.place([5]).tolist() == [-1]


def test_random_draws_the_node_and_the_gpu_of_a_part() -> None:
    nodes = [node(2, name="a"), node(1, name="b"), node(2, name="c")]
    packer = Packer(nodes, [pod(milli=300), pod(gpus=2), pod()], "random")
    assert packer.place([0, 0], np.array([[0.99, 0.5], [0.0, 0.49]])).tolist() == [2, 0]
    assert packer.gpu_milli == [[700, 1000], [1000], [1000, 700]]
    assert packer.place([1], np.array([[0.5, 0.5]])).tolist() == [-1]
    # All three have a whole GPU; 0.34 is the second of them. Whole GPUs are not drawn.
    assert packer.place([2, 2], np.array([[0.34, 0.9], [0.0, 0.9]])).tolist() == [1, 0]
    assert packer.gpu_milli == [[700, 0], [0], [1000, 700]]


def test_models_cores_memory_and_the_number_of_pods_decide_who_fits() -> None:
    wanted = [
        pod(2000), pod(2001), pod(memory=11), pod(1, 1, 1, "b"), pod(1, 1, 1, "a|b"), pod(gpus=3), pod(0, 0, 0, "b"),
    ]  # fmt: skip
    packer = Packer([node(2, 2000, model="a", memory=10)], wanted, "random")
    assert [packer.scores(i)[0] is not None for i in range(7)] == [True, False, False, False, True, False, True]
    assert fit_nowhere([node(2, 2000, model="a", memory=10)], [*wanted, wanted[1]]) == 5
    crowd = Packer([node(1)], [pod(0, 0, 0)], "best-fit").place([0] * 1002)
    assert np.flatnonzero(crowd < 0).tolist() == [1001]


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule != "random"])
def test_ties_go_to_the_first_node_and_what_finds_no_room_is_dropped(rule: str) -> None:
    nodes = [node(1, 4000, name) for name in ("b", "a")]
    packer = Packer(nodes, [pod()], rule)
    assert packer.place([0, 0, 0]).tolist() == [0, 1, -1]
    assert packer.unusable() == 0


def test_the_order_of_the_nodes_is_drawn_once_for_each_seed() -> None:
    # The small pod goes to the first node; where that is the one with the cores, the large pod finds none.
    nodes = [node(1, 1000, "a"), node(1, 2000, "b")]
    pods = [pod(1000, name="small"), pod(2000, name="large")]

    def refused(seed: int, **options: int | str) -> int:
        return fill(nodes, pods, "gpu-packing", seed, 1.0, **options).refused  # type: ignore[arg-type]

    assert {refused(seed, node_order="names") for seed in range(12)} == {0}
    assert {refused(seed) for seed in range(12)} == {0, 1}
    small_first = next(seed for seed in range(12) if refused(seed))
    assert {refused(small_first, order_seed=seed) for seed in range(12)} == {0, 1}
    assert refused(small_first, order_seed=small_first) == refused(small_first)
    # Which names the nodes have changes nothing but what the order is drawn from.
    swapped = [node(1, 2000, "a"), node(1, 1000, "b")]
    large_last = fill(swapped, pods, "gpu-packing", small_first, 1.0, node_order="names")
    assert large_last.refused == 1


def test_a_filling_by_hand() -> None:
    # Pods of a GPU come until the next would pass 2,600 thousandths: two of them.
    filling = fill([node(2)], [pod()], "best-fit", 3)
    assert len(filling.demand) == 131
    assert filling.demand[[0, 50, 130]] == pytest.approx([0, 0.5, 1.3])
    steps = [0, 49, 50, 99, 100, 130]
    assert filling.allocated[steps].tolist() == [0, 0, 0.5, 0.5, 1, 1]
    assert filling.refused == 0
    # Four come; from the third on they count as demand, though there is no room.
    assert fill([node(2)], [pod()], "best-fit", 3, 2.0).refused == 2
    # Three pods at demands of 1 / 3 %, 2 / 3 % and 1 %, three more at 4 / 3 %, 5 / 3 % and 2 %: the step at 1 % is the
    # mean of the 2nd to the 4th, each rounded to 0.01 %, that at 2 % of the 5th and 6th.
    small = fill([node(3)], [pod(milli=10)], "best-fit", 1, 0.02)
    assert small.allocated.tolist() == pytest.approx([0.0033, (0.0067 + 0.01 + 0.0133) / 3, (0.0167 + 0.02) / 2])


def test_pods_come_until_the_next_would_pass_the_demand() -> None:
    def come(pods: list[Pod], gpu_milli: int, demand: float = 1.0) -> list[int]:
        return inflated(pods, gpu_milli, demand, np.random.default_rng(1))

    assert come([pod(milli=400)], 1000) == [0, 0]
    assert come([pod(milli=500)], 1000) == [0, 0]  # to pass it is to exceed it
    # Of eight GPUs one is looked at: 8,000 + 1,000 does not pass 9,000, though 16,000 does; 17,000 does.
    assert come([pod(gpus=8)], 9000) == [0, 0]
    assert come([pod(gpus=8)], 8999) == [0]
    # All come once, then random ones of the whole list, those without GPUs too.
    pods = [pod(name="a"), pod(milli=500, name="b"), pod(0, 0, 0, name="c")]
    order = come(pods, 40_000)
    assert sorted(order[:3]) == [0, 1, 2]
    assert set(order[3:]) == {0, 1, 2}
    assert 39_000 < sum(pods[i].total_milli for i in order) <= 40_000
    # They are drawn by name, not by their place in the list.
    turned = come(pods[::-1], 40_000)
    assert [pods[::-1][i].name for i in turned] == [pods[i].name for i in order]
    # A list that asks for more loses random pods.
    kept = come([pod(name=str(i)) for i in range(9)], 4500)
    assert len(set(kept)) == len(kept) == 4
    with pytest.raises(ValueError, match="no pod asks for a GPU"):
        come([pod(0, 0, 0)], 1000)


def test_the_rules_part_where_the_cluster_is_nearly_full() -> None:
    nodes = read_nodes(LISTS / "nodes.csv")
    pods = read_pods(LISTS / "pods.csv", nodes)
    found = pack(nodes, pods, RULES, seeds=3)
    ends = {rule: packed.allocated.mean for rule, packed in found.items()}
    assert all(ends["random"] < ends[rule] <= 1 for rule in RULES[1:])
    assert found["fgd"].allocated.half_width is not None
    assert pack(nodes, pods, ["random"], seeds=3)["random"] == found["random"]


def test_the_spread_over_arrivals_and_over_orders_are_told_apart() -> None:
    nodes = [node(1, 1000, "a"), node(1, 2000, "b")]
    pods = [pod(1000, name="small"), pod(2000, name="large")]
    packed = pack(nodes, pods, ["gpu-packing"], 6, 1.0)["gpu-packing"]
    for spread, seeds in (
        (packed.spread_arrivals, [(seed, 1) for seed in range(1, 7)]),
        (packed.spread_orders, [(1, seed) for seed in range(1, 7)]),
    ):
        ends = [fill(nodes, pods, "gpu-packing", one, 1.0, order_seed=two).allocated[-1] for one, two in seeds]
        mean = sum(ends) / 6
        assert spread == pytest.approx((sum((end - mean) ** 2 for end in ends) / 5) ** 0.5)
    by_name = pack(nodes, pods, ["gpu-packing", "random"], 6, 1.0, node_order="names")
    assert by_name["gpu-packing"].spread_orders is None
    assert by_name["random"].spread_orders is not None  # it draws all the same
    assert pack(nodes, pods, ["fgd"], 1, 1.0)["fgd"].spread_arrivals is None


def test_wrong_lists_are_refused_with_every_line(tmp_path: Path) -> None:
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    rows = ("a,1,1,1,460", "a,1,1,1,2000", "b,x,1,1,0")
    pods.write_text("\n".join(("name,cpu_milli,memory_mib,num_gpu,gpu_milli", *rows)), encoding="utf-8")
    nodes.write_text("sn,cpu_milli,memory_mib,gpu\nn,1,1,0\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_pods(pods)
    said = str(error.value)
    assert "3: column 'name': 'a' also names an earlier row" in said
    assert "3: column 'gpu_milli': '2000' is more than a whole GPU" in said
    assert "4: column 'cpu_milli': 'x' is not a number" in said
    assert "4: column 'gpu_milli': '0' is not a part of a GPU" in said
    with pytest.raises(InputError, match="no node has a GPU"):
        read_nodes(nodes)
    with pytest.raises(InputError, match="no pod asks for a GPU"):
        pack([node(1, 1, memory=1)], [pod(0, 0, 0)], ["fgd"], 1)


def test_a_list_that_does_not_fit_the_nodes_is_refused_with_every_line(tmp_path: Path) -> None:
    pods = tmp_path / "pods.csv"
    rows = ("a,9,8,2,1000,A|B", "b,10,9,3,1000,C|D", "c,9,8,0,0,C", "d,9,8,1,5,")
    pods.write_text("\n".join(("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", *rows)), encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_pods(pods, [node(2, 5, "m", "A", 8), node(1, 9, "n", "A", 5)])
    assert sorted(str(problem).removeprefix(f"{pods}:").split(";")[0] for problem in error.value.problems) == [
        "3: column 'cpu_milli': '10' is more than any node has (9)",
        "3: column 'gpu_spec': 'C|D' names no model of the nodes (A)",
        "3: column 'memory_mib': '9' is more than any node has (8)",
        "3: column 'num_gpu': '3' is more than any node has (2)",
    ]
    with pytest.raises(InputError, match=r"'A\|B' names no model of the nodes \(none has any\)"):
        read_pods(pods, [node(3, 10, "m", memory=9)])


def test_published_means_are_those_of_the_lists_given(tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    head = "pod_list,rule,mean_percent\n"
    path.write_text(head + "cpu250,FGD,93.4\ncpu250,GpuPacking,88\ndefault,FGD,95.4\n", encoding="utf-8")
    found = read_published(path, ["openb_pod_list_cpu250", "mine"])
    assert found == {
        ("openb_pod_list_cpu250", "fgd"): pytest.approx(0.934),
        ("openb_pod_list_cpu250", "gpu-packing"): pytest.approx(0.88),
    }
    with pytest.raises(InputError, match="has no row for mine; it has cpu250, default"):
        read_published(path, ["mine"])
    path.write_text(head + "cpu250,Best,93.4\ncpu250,FGD,101\ncpu250,FGD,90\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_published(path, ["cpu250"])
    said = str(error.value)
    assert f"2: column 'rule': 'Best' is not one of {', '.join(PUBLISHED_NAMES.values())}" in said
    assert "3: column 'mean_percent': '101' is above 100" in said
    assert "4: column 'rule': 'FGD' has a row for this list already" in said


def test_the_command_prints_a_line_a_rule_or_json(simsched_pack, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    told = simsched_pack("--example", "--rule", "best-fit", "--rule", "random", "--seeds", "2", "--no-plots")
    assert [line.split()[1] for line in told.splitlines() if "±" in line and "pods " in line[:5]] == [
        "best-fit",
        "random",
    ]
    assert "the first node in an order drawn once for each seed" in told
    lists = (str(LISTS / "pods.csv"), str(LISTS / "nodes.csv"))
    (one,) = json.loads(simsched_pack(*lists, "--rule", "random", "--seeds", "1", "--no-plots", "--json"))["rules"]
    assert (one["pods"], one["rule"], len(one["curve"]), one["published"]) == ("pods", "random", 131, None)
    for wrong in ((), lists[:1], (*lists, "--example")):
        assert "name the files, that of the nodes last, or give --example alone" in simsched_pack(*wrong, code=2)
    assert "there are two lists named pods" in simsched_pack(lists[0], *lists, code=2)
    published, second = tmp_path / "published.csv", tmp_path / "second.csv"
    published.write_text("pod_list,rule,mean_percent\nsecond,FGD,50\n", encoding="utf-8")
    second.write_text((LISTS / "pods.csv").read_text(encoding="utf-8"), encoding="utf-8")
    both = (lists[0], str(second), lists[1], "--rule", "fgd", "--seeds", "1", "--node-order", "names")
    rows = json.loads(simsched_pack(*both, "--published", str(published), "--no-plots", "--json"))["rules"]
    assert [(row["pods"], row["published"]) for row in rows] == [("pods", None), ("second", 0.5)]
    assert rows[0]["allocated"] == rows[1]["allocated"]
    table = simsched_pack(*both, "--published", str(published), "--out", str(tmp_path / "out"))
    off = (rows[1]["allocated"]["mean"] - 0.5) * 100
    cells = {line.split()[0]: line.split()[3:5] for line in table.splitlines() if line.split()[1:2] == ["fgd"]}
    assert cells == {"pods": ["-", "-"], "second": ["50.00", f"{off:+.2f}"]}
    assert {"allocation-pods.png", "allocation-second.png"} <= {path.name for path in (tmp_path / "out").iterdir()}


def test_the_figure_shows_means() -> None:
    ones = [estimate((0.5, 0.6)), estimate((0.8, 0.9)), estimate((0.9, 0.9))]
    figure, data = allocation_curves({"fgd": ((0.5, 0.9, 1.3), ones)}, title="t", seeds=2)
    (axes,) = figure.axes
    assert axes.get_lines()[0].get_ydata() == pytest.approx([55, 85, 90])
    assert data["allocated"].tolist() == pytest.approx([0.55, 0.85, 0.9])


@pytest.fixture
def simsched_pack():  # type: ignore[no-untyped-def]
    from click.testing import CliRunner

    from simsched.cli.main import cli

    def call(*options: str, code: int = 0) -> str:
        done = CliRunner().invoke(cli, ["pack", *options], catch_exceptions=False)
        assert done.exit_code == code
        return done.stderr if code else done.stdout

    return call
