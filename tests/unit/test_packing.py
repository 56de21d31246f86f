"""Parts of GPUs: the measure of fragmentation, the scores, and fillings, all worked by hand; and the lists of pods."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.model.pod import Pod, PodNode
from simsched.operators.packing import pack
from simsched.packing.fragmentation import Target, fragmentation
from simsched.packing.inflation import Packer, fill, inflated
from simsched.packing.rules import RULES, BestFit, DotProduct, Fgd, NodeState, Requests, make_rule
from simsched.paths import data_folder
from simsched.report.figures.packing import allocation_curves
from simsched.results.statistics import estimate
from simsched.workload.pods import read_nodes, read_pods

LISTS = data_folder("workloads") / "packing"


def pod(cpu: int = 1000, gpus: int = 1, milli: int = 1000, *models: str, name: str = "", memory: int = 0) -> Pod:
    return Pod(name, cpu, memory, gpus, milli, frozenset(models))


def target(*weighted: tuple[float, Pod]) -> Target:
    requests = Requests.of([one for _, one in weighted])
    shares = np.array([share for share, _ in weighted])
    return Target(requests.cpu_milli, requests.num_gpus, requests.gpu_milli, requests.gpu_models, shares)


def state(cpu: int, *gpus: int, model: str = "") -> NodeState:
    return NodeState(PodNode("n", cpu, 0, len(gpus), model), cpu, 0, np.array(gpus, dtype=np.int64))


def test_fragmentation_is_what_each_class_cannot_use() -> None:
    usual = target((0.5, pod(1000, 1, 600)), (0.3, pod(1000, 2)), (0.2, pod(1000, 0, 0)))
    everywhere = np.array([True, True, True])
    gpus = np.array([[500, 1000], [500, 1000], [1000, 1000], [0, 0]])
    cpu = np.array([8000, 999, 8000, 8000])
    # The first class misses the 500, the second has no two GPUs, the third wants none. Then no class has the cores;
    # then only the third cannot use what is free; then nothing is.
    expected = [0.5 * 500 + 0.5 * 1500, 1500, 0.2 * 2000, 0]
    assert fragmentation(usual, everywhere, cpu, gpus) == pytest.approx(expected)
    assert fragmentation(usual, np.array([False, True, True]), cpu, gpus)[2] == pytest.approx(0.7 * 2000)


def test_the_target_is_the_most_frequent_requests() -> None:
    pods = [pod(milli=500)] * 12 + [pod()] * 7 + [pod(gpus=8)]
    found = Target.of(pods)
    assert found.gpu_milli.tolist() == [500, 1000]
    assert found.share == pytest.approx([12 / 19, 7 / 19])
    assert len(Target.of(pods, covered=1.0).share) == 3
    models = Target.of([pod(1, 1, 1000, "a"), pod()], 1.0)
    assert [models.accepts(PodNode("n", 1, 1, 1, model)).tolist() for model in "ab"] == [[True, True], [False, True]]


def test_scores_by_hand() -> None:
    node, asked = state(64_000, *[1000] * 4), Requests.of([pod(32_000)])
    fits = np.array([True])
    # What is left: a quarter of the cores' scale and 3/8 of that of GPUs; the products 1/4 * 1/2 and 1/8 * 1/2.
    assert BestFit().scores(node, asked, fits).tolist() == [68]  # 68.75
    assert DotProduct().scores(node, asked, fits).tolist() == [90]  # 90.625


def test_fgd_spares_the_gpu_that_whole_requests_need() -> None:
    rule, node = Fgd(target((1.0, pod()))), state(64_000, 1000, 500)
    requests = Requests.of([pod(milli=500), pod(), pod(milli=600), pod(gpus=2)])
    fits = node.fitting(requests)
    assert fits.tolist() == [True, True, True, False]
    # 500 are fragmented before. Onto the 500: 0, sigmoid(0.5). The whole GPU: 500 still. 600 of it: 900, sigmoid(-0.4).
    assert rule.scores(node, requests, fits).tolist() == [62, 50, 40, 0]
    assert rule.gpus(node, pod(milli=500)) == [1]


def test_who_gets_which_gpu() -> None:
    node = state(1000, 900, 1000, 700, 1000)
    assert node.gpus_for(pod(milli=600)) == [2]
    assert node.gpus_for(pod(milli=800)) == [0]
    assert node.gpus_for(pod(gpus=2)) == [1, 3]
    assert node.gpus_for(pod(0, 0, 0)) == []


def test_models_cores_and_memory_decide_who_fits() -> None:
    node = NodeState.empty(PodNode("n", 2000, 10, 2, "a"))
    wanted = [
        pod(2000),
        pod(2001),
        pod(memory=11),
        pod(1, 1, 1, "b"),
        pod(1, 1, 1, "a", "b"),
        pod(gpus=3),
        pod(0, 0, 0),
    ]
    assert node.fitting(Requests.of(wanted)).tolist() == [True, False, False, False, True, False, True]


@pytest.mark.parametrize("rule", ["dot-product", "best-fit", "fgd"])
def test_ties_go_to_the_name_that_comes_first_and_what_finds_no_room_is_dropped(rule: str) -> None:
    nodes = [PodNode(name, 4000, 0, 1) for name in ("b", "a")]
    pods = [pod(name=f"{i}") for i in range(3)]
    packer = Packer(nodes, pods, make_rule(rule, Target.of(pods)), np.random.default_rng(1))
    assert [packer.place(i) for i in range(3)] == ["a", "b", None]
    assert (packer.allocated_milli, packer.refused, packer.unusable()) == (2000, 1, 0)


@pytest.mark.parametrize("rule", ["dot-product", "best-fit", "fgd"])
def test_a_pod_goes_where_one_is_already_and_less_is_left(rule: str) -> None:
    nodes, pods = [PodNode("a", 96_000, 0, 8), PodNode("b", 64_000, 0, 8)], [pod(8000, milli=600), pod(8000, milli=300)]
    packer = Packer(nodes, pods, make_rule(rule, target((1.0, pod()))), np.random.default_rng(1))
    # Of equal fragmentation FGD knows only the name; then both go to the GPU that is broken into already.
    assert [packer.place(i) for i in range(2)] == ([*"aa"] if rule == "fgd" else [*"bb"])


def test_a_filling_by_hand() -> None:
    # Two GPUs; pods of 600 and 1,000 come in turns of the seed until they have asked for 2,600.
    filling = fill([PodNode("a", 9000, 0, 2)], [pod(milli=600), pod()], "best-fit", np.random.default_rng(3))
    assert filling.demand[[0, 100, 130]] == pytest.approx([0, 1, 1.3])
    assert filling.allocated[0] == 0
    assert filling.allocated[-1] in (0.6, 0.8, 1.0)
    assert (np.diff(filling.allocated) >= 0).all()
    assert (filling.allocated <= filling.demand + 1e-9).all()


def test_all_pods_come_once_and_then_some_again() -> None:
    pods = [pod(), pod(milli=500), pod(0, 0, 0)]
    order = inflated(pods, 4000, 1.5, np.random.default_rng(1))
    assert sorted(order[:3]) == [0, 1, 2]
    asked = [pods[i].total_milli for i in order]
    assert sum(asked[:-1]) < 6000 <= sum(asked)
    with pytest.raises(ValueError, match="no pod asks for a GPU"):
        inflated([pod(0, 0, 0)], 1000, 1, np.random.default_rng(1))


def test_the_rules_part_where_the_cluster_is_nearly_full() -> None:
    found = pack(read_nodes(LISTS / "nodes.csv"), read_pods(LISTS / "pods.csv"), RULES, seeds=3)
    ends = {rule: packed.allocated.mean for rule, packed in found.items()}
    assert ends["random"] < ends["best-fit"] <= 1
    assert ends["random"] < ends["fgd"] <= 1
    assert found["fgd"].allocated.half_width is not None
    again = pack(read_nodes(LISTS / "nodes.csv"), read_pods(LISTS / "pods.csv"), ["random"], seeds=3)
    assert again["random"] == found["random"]


def test_wrong_lists_are_refused_with_every_line(tmp_path: Path) -> None:
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    rows = ("a,1,1,1,460", "a,1,1,1,2000", "b,x,1,1,0")
    pods.write_text("\n".join(("name,cpu_milli,memory_mib,num_gpu,gpu_milli", *rows)), encoding="utf-8")
    nodes.write_text("sn,cpu_milli,memory_mib,gpu\nn,1,1,0\n", encoding="utf-8")
    with pytest.raises(InputError) as error:
        read_pods(pods)
    said = str(error.value)
    assert "3: column 'name': 'a' names an earlier row too" in said
    assert "3: column 'gpu_milli': '2000' is more than a whole GPU" in said
    assert "4: column 'cpu_milli': 'x' is no number" in said
    assert "4: column 'gpu_milli': '0' is no part of a GPU" in said
    with pytest.raises(InputError, match="no node has a GPU"):
        read_nodes(nodes)
    with pytest.raises(InputError, match="no pod asks for a GPU"):
        pack([PodNode("n", 1, 1, 1)], [pod(0, 0, 0)], ["fgd"], 1)


def test_the_command_prints_a_line_a_rule_or_json(simsched_pack) -> None:  # type: ignore[no-untyped-def]
    told = simsched_pack("--example", "--rule", "best-fit", "--rule", "random", "--seeds", "2", "--no-plots")
    assert [line.split()[0] for line in told.splitlines() if "±" in line] == ["best-fit", "random"]
    lists = (str(LISTS / "pods.csv"), str(LISTS / "nodes.csv"))
    (one,) = json.loads(simsched_pack(*lists, "--rule", "random", "--seeds", "1", "--no-plots", "--json"))["rules"]
    assert one["rule"] == "random"
    assert len(one["curve"]) == 131
    for wrong in ((), lists[:1], (*lists, "--example")):
        assert "name both files, or give --example alone" in simsched_pack(*wrong, code=2)


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
