import json
import textwrap
from dataclasses import dataclass

import pytest

from simsched.documents import Section, yaml_lines
from simsched.errors import InputError
from simsched.experiment.checks import _DECIDING
from simsched.experiment.cluster import ClusterSpec
from simsched.experiment.policy_params import full_params, make_policy
from simsched.experiment.results_name import find_experiment, shipped_experiments
from simsched.experiment.spec import ExperimentSpec, WorkloadSpec, _with_keys_of, json_schema
from simsched.experiment.validation import _NOT_SWEPT, check_experiment, read_experiment
from simsched.keys import key
from simsched.model.cluster import Cluster, NodeGroup
from simsched.policy import registry

GOOD = """\
name: good
policies:
  - {name: tiresias, label: "Tiresias (k=1)", params: {queue_thresholds_gpu_s: [100]}}
  - name: fifo
    workload: {configs: realistic}
    engine: {interference: 0.5}
seeds: 3
sweep:
  policies.tiresias.params.interval_s: [60, 120]
  workload.load: [1, 2.0]
"""


@pytest.fixture
def read(tmp_path):
    def reader(text, *overrides):
        path = tmp_path / "e.yaml"
        path.write_text(textwrap.dedent(text))
        return read_experiment(path, overrides)

    return reader


@pytest.fixture
def complaints(read, tmp_path):
    def complain(text, *overrides):
        with pytest.raises(InputError) as caught:
            read(text, *overrides)
        return [str(problem).replace(f"{tmp_path}/", "") for problem in caught.value.problems]

    return complain


def test_defaults_are_those_of_the_pollux_evaluation(read):
    spec = read("name: x\npolicies: [{name: fifo}]\n").spec
    assert spec.cluster.build().nodes == Cluster.uniform(16, 4, "t4").nodes
    assert spec.engine.restart_delay_s == 30
    assert spec.seeds == (1,)
    assert spec.workload.source == "philly-generated"


def test_a_sweep_makes_every_combination(read):
    experiment = read(GOOD)
    assert [tuple(point.values.values()) for point in experiment.points] == [(60, 1), (60, 2.0), (120, 1), (120, 2.0)]
    last = experiment.points[-1].spec
    assert last.policies[0].params == {"queue_thresholds_gpu_s": [100], "interval_s": 120}
    assert last.workload.load == 2.0
    assert experiment.spec.seeds == (1, 2, 3)


def test_a_policy_may_differ_in_workload_and_engine(read):
    spec = read(GOOD).points[-1].spec
    tuned, realistic = spec.policies
    assert spec.workload_of(tuned).configs == "tuned"
    assert spec.workload_of(realistic).configs == "realistic"
    assert spec.workload_of(realistic).load == 2.0
    assert spec.engine_of(realistic).interference == 0.5
    assert spec.engine_of(realistic).restart_delay_s == 30


def test_groups_of_nodes_make_a_mixed_cluster(read):
    text = "name: x\npolicies: [{name: fifo}]\ncluster: {groups: [{nodes: 2, gpus_per_node: 8, gpu_type: v100}, {nodes: 1, gpus_per_node: 2}]}\n"  # noqa: E501
    assert read(text).spec.cluster.build().nodes == Cluster.of(NodeGroup(2, 8, "v100"), NodeGroup(1, 2, "t4")).nodes
    assert ClusterSpec().build().total_gpus == 64


def test_everything_wrong_is_reported_at_once_with_line_key_and_nearest_name(complaints):
    text = """\
    name: no good
    cluster: {nodes: 0, gpu_typ: t4}
    workload:
      configs: tund
      jobs: "160"
    engine: {interference: 1.5}
    policies:
      - {name: polux}
      - {name: tiresias, params: {queue_threshold_gpu_s: [1]}}
      - name: tiresias
        params: {queue_thresholds_gpu_s: [1, a]}
    seeds: [1, 1]
    sweeep: {}
    """
    assert complaints(text) == [
        "e.yaml:1: name: 'no good' must consist of letters, digits, '.', '_' and '-', with no leading sign",
        "e.yaml:2: cluster.nodes: must be at least 1, not 0",
        "e.yaml:2: cluster.gpu_typ: there is no such key; did you mean 'gpu_type'?",
        "e.yaml:4: workload.configs: must be 'tuned' or 'realistic', not 'tund'; did you mean 'tuned'?",
        "e.yaml:5: workload.jobs: must be a whole number, not '160'",
        "e.yaml:6: engine.interference: must be less than 1, not 1.5",
        "e.yaml:8: policies.polux.name: 'polux': there is no such policy; did you mean 'pollux'?",
        "e.yaml:9: policies.tiresias.params.queue_threshold_gpu_s: the policy 'tiresias' has no such parameter; "
        "did you mean 'queue_thresholds_gpu_s'?",
        "e.yaml:10: policies.tiresias.name: another policy is also called 'tiresias'; give each a 'label' of its own",
        "e.yaml:11: policies.tiresias.params.queue_thresholds_gpu_s.1: must be a whole number, not 'a'",
        "e.yaml:12: seeds: lists the same value twice",
        "e.yaml:13: sweeep: there is no such key; did you mean 'sweep'?",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("policies: [{name: fifo}]", "e.yaml: name: is missing"),
        ("name: x", "e.yaml: policies: is missing"),
        ("name: x\npolicies: []", "e.yaml:2: policies: must have at least 1 item"),
        ("name: x\npolicies: fifo", "e.yaml:2: policies: must be a list, not 'fifo'"),
        ("name: x\npolicies: [{name: fifo}]\nseeds: 0", "e.yaml:3: seeds: a number of seeds must be between 1 and"),
        ("name: x\npolicies: [{name: fifo}]\nseeds: []", "e.yaml:3: seeds: must have at least 1 item"),
        ("name: x\npolicies: [{name: fifo}]\nseeds: [-1]", "e.yaml:3: seeds.0: must be at least 0, not -1"),
        (
            "name: x\npolicies: [{name: fifo}]\nengine: 3",
            "e.yaml:3: engine: must be a mapping of keys to values, not 3",
        ),
        ("name: x\npolicies: [{name: fifo}]\nengine: {restart_delay_s: 1.5}", "must be a whole number, not 1.5"),
        (
            "name: x\npolicies: [{name: fifo}]\nworkload: {load: .nan}",
            "e.yaml:3: workload.load: must be a finite number",
        ),
        ("name: x\npolicies: [{name: fifo}]\nworkload: {load: 0}", "e.yaml:3: workload.load: must be more than 0"),
        (
            "name: x\npolicies: [{name: fifo}]\ncluster: {nodes: 2, groups: [{nodes: 1, gpus_per_node: 1}]}",
            "e.yaml:3: cluster: give either 'groups' or 'nodes', not both",
        ),
        (
            "name: x\npolicies:\n  - name: tiresias\n    params: {interval_s: 0}",
            "e.yaml:4: policies.tiresias.params.interval_s: interval_s must be above 0, not 0",
        ),
        (
            "name: x\npolicies:\n  - name: tiresias\n    params: {queue_thresholds_gpu_s: [2, 1]}",
            "e.yaml:4: policies.tiresias.params.queue_thresholds_gpu_s: queue_thresholds_gpu_s must be positive and",
        ),
        (
            "name: x\npolicies: [{name: fifo}]\ndiagnostics: [gap]",
            "e.yaml:3: diagnostics: none of these policies",
        ),
        ("name: x\npolicies: [{name: fifo}]\nreport: {reference: fif}", "e.yaml:3: report.reference: no policy of"),
        ("name: x\npolicies: [{name: fifo}]\npublished: {fif: {jct_mean_s: 1}}", "did you mean 'fifo'?"),
        ("name: x\npolicies: [{name: fifo}]\npublished: {fifo: {jct_man_s: 1}}", "did you mean 'jct_mean_s'?"),
        ("name: x\npolicies: [{name: fifo}]\nsweep: {seeds: [1]}", "e.yaml:3: sweep.seeds: this key cannot be swept"),
        (
            "name: x\npolicies: [{name: fifo}]\nsweep: {workload.load: [1, x]}",
            "sweep.workload.load.1: workload.load: must",
        ),
        (
            "name: x\npolicies: [{name: pollux, params: {p: -1}}]",
            "policies.pollux.params.p: the policy 'pollux' has no such parameter; did you mean 'fairness'?",
        ),
        (
            "name: x\npolicies: [{name: pollux}]\nsweep: {fairness: [1, -1]}",
            "sweep.fairness: there is no such key; did you mean 'policies.pollux.params.fairness'?",
        ),
        (
            "name: x\npolicies: [{name: fifo}]\nsweep: {load: [1, 2]}",
            "sweep.load: there is no such key; did you mean 'workload.load'?",
        ),
        ("name: x\npolicies: [{name: fifo}]\nsweep: {workload.load: [1, 1]}", "the value 1 is given twice"),
        (
            "name: x\npolicies: [{name: fifo}]\nsweep: {policies.fif.params.x: [1]}",
            "no policy of this experiment is called",
        ),
    ],
)
def test_each_kind_of_mistake_names_its_place(complaints, text, said):
    assert any(said in line for line in complaints(text)), complaints(text)


def test_overrides_reach_keys_items_and_policies_by_label(read):
    spec = read(
        GOOD,
        "workload.jobs=20",
        "policies.Tiresias (k=1).params.queue_thresholds_gpu_s=[5, 6]",
        "policies.1.name=srtf",
        "sweep={}",
        "seeds=[4]",
        "description=a = b",
    ).spec
    assert spec.workload.jobs == 20
    assert spec.policies[0].params["queue_thresholds_gpu_s"] == [5, 6]
    assert spec.policies[1].name == "srtf"
    assert (spec.sweep, spec.seeds, spec.description) == ({}, (4,), "a = b")


def test_an_override_of_all_policies(read):
    text = "name: x\npolicies: [{name: tiresias}, {name: optimus}]\n"
    spec = read(text, "policies.*.params.interval_s=30").spec
    assert [policy.params for policy in spec.policies] == [{"interval_s": 30}, {"interval_s": 30}]


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("workload.loda=2", "-o workload.loda=2: workload.loda: there is no such key; did you mean 'load'?"),
        ("workload.load=x", "-o workload.load=x: workload.load: must be a number, not 'x'"),
        ("seeds", "-o seeds: write an override as key=value, for instance 'workload.jobs=20'"),
        ("policies.tireias.params.x=1", "-o policies.tireias.params.x=1: no policy of this experiment is called "
         "'tireias'; did you mean 'tiresias'?"),
        ("policies.7.name=x", "-o policies.7.name=x: no policy of this experiment is called '7'; "
         "known: Tiresias (k=1), fifo, tiresias"),
        ("name.x=1", "-o name.x=1: 'name' has no keys"),
        ("a..b=1", "-o a..b=1: 'a..b' is not a key; write the keys with single dots between them"),
        ("seeds={", "-o seeds={: is not valid YAML: a bracket or brace is not closed, or a comma follows nothing; "
         "close it, or drop the comma"),
        ("policies.fifo.params.x=1", "-o policies.fifo.params.x=1: policies.fifo.params.x: the policy 'fifo' has no "),
    ],
)  # fmt: skip
def test_bad_overrides_are_named(complaints, override, said):
    (complaint,) = complaints(GOOD, override)
    assert complaint.startswith(said)


def test_all_bad_overrides_are_reported_at_once(complaints):
    assert len(complaints(GOOD, "seeds=0", "cluster.nodes=-1", "engine.interference=x")) == 3


def test_paths_count_from_the_file_and_on_the_command_line_from_here(read, tmp_path, monkeypatch):
    text = "name: x\npolicies: [{name: fifo}]\nworkload: {path: jobs.csv}\napplications: {path: ../apps}\n"
    spec = read(text).spec
    assert spec.workload.path == str(tmp_path / "jobs.csv")
    assert spec.applications.path == str(tmp_path.parent / "apps")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert read(text, "workload.path=own.csv").spec.workload.path == str(elsewhere / "own.csv")
    assert read(text, "workload={path: own.csv}").spec.workload.path == str(elsewhere / "own.csv")


def test_parameters_are_converted_as_the_constructor_says_and_defaults_filled_in():
    tiresias = registry.load("tiresias")
    policy = make_policy(tiresias, {"queue_thresholds_gpu_s": [10, 20]})
    assert list(policy.queue_thresholds_gpu_s) == [10, 20]
    full = full_params(tiresias, {"interval_s": 30})
    assert (full["queue_thresholds_gpu_s"], full["interval_s"]) == ([57600], 30)


def test_diagnostics_go_to_the_policies_that_know_them(read):
    experiment = read("name: x\npolicies: [{name: pollux}, {name: fifo}]\ndiagnostics: [gap]\n")
    assert experiment.spec.diagnostics == ("gap",)
    assert full_params(registry.load("pollux"), {}, ["gap"])["trace"] == ["gap"]


def test_the_json_schema_knows_every_section_and_forbids_other_keys():
    schema = json.loads(json.dumps(json_schema()))
    assert set(schema["properties"]) == set(ExperimentSpec.model_fields)
    assert schema["additionalProperties"] is False
    assert schema["properties"]["seeds"]["anyOf"][0] == {"const": "auto"}
    assert schema["properties"]["seeds"]["anyOf"][1]["type"] == "integer"


@pytest.mark.parametrize("name", [name for name in shipped_experiments() if not name.startswith("validation/")])
def test_shipped_experiments_are_valid(name):
    experiment = read_experiment(find_experiment(name))
    assert name.endswith(experiment.spec.name) or experiment.spec.name == name.replace("/", "-")
    assert experiment.spec.description


def test_table2_sets_imagenet_means_beside_what_the_paper_prints_as_99th_percentile():
    spec = read_experiment(find_experiment("table2")).spec
    assert [policy.shown_as for policy in spec.policies] == list(spec.published)
    assert spec.published["Tiresias, realistic"] == {"jct_mean_h": 2.8, "jct_mean_h[imagenet]": 25, "makespan_h": 31}
    assert all("jct_p99_h" not in values for values in spec.published.values())


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["workload.max_gpus=8"],
            "workload.max_gpus: it has no effect here; it is a key of the recipe replay or sia",
        ),
        (
            ["workload.recipe=replay", "workload.window_h=4"],
            "workload.window_h: it has no effect here; it is a key of",
        ),
        (["workload.source=philly-synthetic", "workload.days=3"], "it is a key of the source philly-generated; leave"),
    ],
)
def test_keys_that_would_change_nothing_are_refused(complaints, overrides, said):
    text = "name: a\nworkload: {source: philly-generated, recipe: pollux, jobs: 3}\npolicies: [{name: fifo}]\n"
    (complaint,) = complaints(text, *overrides)
    assert complaint.startswith(f"-o {overrides[-1]}: ")
    assert said in complaint


@pytest.mark.parametrize(
    "overrides",
    [
        ["workload.recipe=replay"],  # what the file says for the recipe before stays there, unused
        ["workload.recipe=replay", "workload.configs=tuned"],  # the default, written out
        ["sweep={workload.recipe: [pollux, replay]}", "workload.max_gpus=8"],
        ["workload.days=3"],
    ],
)
def test_keys_that_may_count_are_not(read, overrides):
    text = "name: a\nworkload: {source: philly-generated, recipe: pollux, window_h: 4}\npolicies: [{name: fifo}]\n"
    assert read(text, *overrides).spec.name == "a"


def test_what_is_never_swept_and_what_decides_which_keys_count_are_keys():
    assert set(_NOT_SWEPT) <= set(ExperimentSpec.model_fields)
    assert set(_DECIDING) <= set(WorkloadSpec.model_fields)


def test_a_policy_may_be_a_name_alone_in_the_file_and_on_the_command_line():
    text = "name: short\npolicies: [fifo, {name: las, label: mine}]\n"
    named = [one.name for one in check_experiment(yaml_lines.parse(text, "e.yaml")).spec.policies]
    assert named == ["fifo", "las"]
    changes = ["policies=[srtf, fifo]", "policies.fifo.params.backfill=true"]
    changed = check_experiment(yaml_lines.parse(text, "e.yaml"), changes).spec.policies
    assert [(one.name, one.params) for one in changed] == [("srtf", {}), ("fifo", {"backfill": True})]
    with pytest.raises(InputError, match=r"e\.yaml:2: policies\.fifa\.name: .*did you mean 'fifo'"):
        check_experiment(yaml_lines.parse("name: short\npolicies: [fifa]\n", "e.yaml"))


def test_a_key_that_is_declared_in_two_ways_is_refused():
    @dataclass(frozen=True)
    class One:
        load: float = key(1.0, "load")

    @dataclass(frozen=True)
    class Other:
        load: float = key(2.0, "load")

    @dataclass(frozen=True)
    class Both(One, Other):
        pass

    with pytest.raises(TypeError, match="Twice: declared in two ways: load"):
        _with_keys_of(Both)(type("Twice", (Section,), {}))
    with pytest.raises(TypeError, match="Twice: declared in two ways: load"):
        _with_keys_of(One)(type("Twice", (Section,), {"__annotations__": {"load": float}, "load": 3.0}))
    assert _with_keys_of(One)(type("Once", (Section,), {}))().load == 1.0
