"""Changes as operators write them: relative numbers, named groups, and messages in the operator's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from simsched.documents import yaml_lines
from simsched.errors import InputError
from simsched.operators import group_names
from simsched.operators.changes import Changed, changed_value, resolve
from simsched.operators.log_input import cluster_groups

TEXT = """
name: x
cluster: {groups: [{nodes: 10, gpus_per_node: 8, gpu_type: a100}, {nodes: 4, gpus_per_node: 4, gpu_type: v100}]}
workload: {recipe: pollux}
policies: [{name: slurm-backfill, params: {limits: {qos: {normal: {per_user: {gpus: 32}}}}}}]
"""


def asked(*changes: str) -> list[str]:
    """Return the changes as an answer prints them."""
    return [str(one) for one in resolve(yaml_lines.parse(TEXT, "x.yaml"), changes)[1]]


@pytest.mark.parametrize(
    ("old", "text", "new"),
    [
        (10, "+4", 14),
        (10, "-4", 6),
        (10, "-25%", 8),
        (10, "+ 50 %", 15),
        (10, "*1.5", 15),
        (2.5, "*2", 5.0),
        (10, "12", 12),
        (-1, "=-10", -10),
        (-1, "+4", 3),
        ("8", "+4", "12"),
        (0.5, "+1e1", 10.5),
    ],
)
def test_a_text_that_has_a_sign_counts_from_the_old_value(old: object, text: str, new: object) -> None:
    assert changed_value(old, text, "x") == new


@pytest.mark.parametrize(
    ("old", "text"),
    [(None, "+4"), ("any", "*2"), (10, "+4_0"), (10, "*150%"), (10, "+1%"), (10, "-.inf")],
)
def test_a_text_that_seems_relative_and_is_not_is_refused(old: object, text: str) -> None:
    with pytest.raises(InputError):
        changed_value(old, text, "x")


def test_an_answer_prints_old_and_new_values_under_the_operators_names() -> None:
    assert asked("cluster.a100.nodes=+4") == ["cluster.a100.nodes 10 -> 14"]
    assert asked("cluster.groups.1.nodes=3") == ["cluster.v100.nodes 4 -> 3"]
    assert asked("policy.backfill.window_s=*2") == ["policy.backfill.window_s 86400 -> 172800"]  # a default
    assert asked("policy.limits.qos.normal.per_user.gpus=+8") == ["policy.limits.qos.normal.per_user.gpus 32 -> 40"]
    assert asked("policy.limits.max_time_h=24") == ["policy.limits.max_time_h none -> 24"]
    assert asked("cluster.v100.nodes=8", "cluster.v100.nodes=+2")[-1] == "cluster.v100.nodes 4 -> 10"
    assert asked("policy=fifo") == ["policy slurm-backfill -> fifo"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("cluster.a10.nodes=+4", "the cluster has no group 'a10'; did you mean 'a100'?"),
        ("policy.backfill.window=3", "policy.backfill.window: there is no such key; did you mean 'window_s'?"),
        ("policy.backfill.placement=any", "there is no such key; the policy itself takes 'placement'"),
        ("policy.limits.partitions.a.tierr=3", "tierr: there is no such key; did you mean 'tier'"),
        ("policy.limits.partitions.a.tier=x", "policy.limits.partitions.a.tier: must be a whole number, not 'x'"),
        ("cluster.a100.nodes=-40", "must be at least 1, not -30"),
    ],
)  # fmt: skip
def test_what_an_experiment_refuses_is_told_in_the_operators_words(change: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        asked(change)
    assert str(refused.value).startswith(f"--change {change}: ")
    assert said in str(refused.value)


def test_nodes_are_told_in_words() -> None:
    assert Changed("cluster.a100.nodes", 10, 14).words == "4 more nodes of a100"
    assert Changed("cluster.nodes", 10, 9).words == "1 fewer node"
    assert Changed("policy.x", None, 1.5).words == "policy.x none -> 1.5"
    assert group_names([{"gpu_type": "a"}, {"gpu_type": "b"}, {"gpu_type": "a"}]) == ["a-1", "b", "a-2"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("groups: [{nodez: 10, gpus_per_node: 8}]", "groups.0.nodez: there is no such key; did you mean 'nodes'?"),
        ("cluster:\n  groups: [{nodes: ten, gpus_per_node: 8}]", "c.yaml:2: groups.0.nodes: must be a whole number"),
        ("a: 1", "describes no cluster"),
    ],
)
def test_a_wrong_cluster_is_told_with_the_place_in_its_file(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError) as refused:
        cluster_groups(tmp_path / "c.yaml")
    assert said in str(refused.value)
