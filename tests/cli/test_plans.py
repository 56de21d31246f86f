"""The commands about plans of large models: ranking, refusing, fitting and predicting."""

import json

import pytest
import yaml

from simsched.applications.plans import find_hardware, shipped_hardware
from simsched.model.plans import Plan

STEPS = """\
model,hidden,layers,heads,seq,gpus,tp,pp,dp,micro_batch,global_batch,seconds,flag,dtype
a,1024,8,16,1024,8,1,1,8,4,64,{},,bf16
a,1024,8,16,1024,8,2,1,4,4,64,{},,bf16
b,2048,8,16,1024,8,1,1,8,2,64,{},,bf16
b,2048,8,16,1024,8,2,2,2,2,64,{},,bf16
b,2048,8,16,1024,8,2,2,2,2,64,9.0,outlier,bf16
b,2048,8,16,1024,8,2,2,2,2,64,0.1,,fp8
"""
CLUSTER = """\
name: leaves
cluster:
  nodes: 4
  gpus_per_node: 8
  gpu_type: h100
  topology:
    - {level: node, nodes: 1, uplink_gb_s: 400}
    - {level: leaf, nodes: 2, uplink_gb_s: 1}
policies: [{name: fifo}]
"""


def test_plans_are_ranked_split_and_drawn(simsched, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = simsched("application", "plans", "llama2-7b", "--gpus", "64", "--hardware", "h100", "--tokens", "1e9")
    assert done.exit_code == 0, done.output
    assert "Measured error of the profile: " in done.output
    assert (tmp_path / "figures" / "llama2-7b-plans.png").is_file()
    done = simsched("application", "plans", "llama2-7b", "--gpus", "64", "--hardware", "h100", "--no-plots", "--json")
    found = json.loads(done.stdout)["plans"]
    steps = [one["step_s"] for one in found]
    assert steps == sorted(steps)
    assert len(found) == 5
    for one in found:
        assert sum(one["parts_s"].values()) == pytest.approx(one["step_s"])
        assert sum(one["memory_gib"].values()) <= 80
        assert Plan.parse(one["plan"]).gpus == 64


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["llama2-7b", "--plan", "t8 p4 d2 b3"], "not divisible by d x b"),
        (["llama2-7b", "--plan", "t8 p4"], "takes 32 GPUs, not 64"),
        (["llama2-7b", "--plan", "t8 x4"], "'x4' is not a word of a plan"),
        (["gpt3-175b", "--plan", "d64"], "GiB more than the 80.0 GiB of h100"),
        (["llama3-405b"], "GiB too many"),
        (["llama2-8b"], "did you mean 'llama2-7b'?"),
        (["llama2-7b", "--across", "leaf"], "name an experiment"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_the_reason(simsched, options, reason):
    done = simsched("application", "plans", *options, "--gpus", "64", "--hardware", "h100", "--no-plots")
    assert done.exit_code == 2
    assert reason in done.output


def test_straddling_a_thin_uplink_costs(simsched, tmp_path):
    (tmp_path / "leaves.yaml").write_text(CLUSTER)
    command = ["application", "plans", "llama2-13b", "--gpus", "16", "--hardware", "h100", "--no-plots", "--json"]
    done = simsched(*command, "--experiment", str(tmp_path / "leaves.yaml"), "--across", "leaf")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    same, best = found["across"]
    assert same["plan"] == found["plans"][0]["plan"]
    assert same["step_s"] >= best["step_s"] > found["plans"][0]["step_s"]
    uneven = simsched(
        *[*command[:4], "22", *command[5:]], "--experiment", str(tmp_path / "leaves.yaml"), "--across", "leaf"
    )
    assert json.loads(uneven.stdout)["plans"][0]["gpus"] < 22, (
        "neither 1,024 sequences nor 40 or 42 layers divide by 11"
    )
    wrong = simsched(*command, "--experiment", str(tmp_path / "leaves.yaml"), "--across", "rack")
    assert (wrong.exit_code, "no level 'rack'" in wrong.output) == (2, True)
    large = simsched(*[*command[:4], "64", *command[5:]], "--experiment", str(tmp_path / "leaves.yaml"))
    assert (large.exit_code, "has 32 GPUs of type 'h100', not 64" in large.output) == (2, True)


def test_a_fit_finds_the_numbers_that_made_the_steps(simsched, tmp_path):
    """Steps are made with other numbers than are expected; it comes near to those."""
    from dataclasses import replace

    from simsched.applications.calibration import predict
    from simsched.applications.plans import read_steps

    begun = shipped_hardware()["h100"]
    true = replace(begun.profile, efficiency=0.5, pointwise_s=2e-12, fixed_s=4e-4)
    path, out = tmp_path / "steps.csv", tmp_path / "mine.yaml"
    path.write_text(STEPS.format(1, 1, 1, 1))
    seconds = predict(true, read_steps(path, begun).rows)
    path.write_text(STEPS.format(*seconds))
    (tmp_path / "begin.yaml").write_text(_fitting(begun, ["efficiency", "pointwise_s", "fixed_s"]))
    done = simsched(
        "application", "fit-plans", str(path), "--hardware", str(tmp_path / "begin.yaml"), "--out", str(out)
    )
    assert done.exit_code == 0, done.output
    assert "1 row left out, flagged as outliers" in done.output
    assert "1 row left out, of fp8, not bf16" in done.output
    found = find_hardware(str(out))
    for name in ("efficiency", "pointwise_s", "fixed_s"):
        assert getattr(found.profile, name) == pytest.approx(getattr(true, name), rel=0.05)
    assert found.errors.worst < 5e-3
    done = simsched("application", "predict-plans", str(path), "--hardware", str(out), "--json")
    assert [one["rows"] for one in json.loads(done.stdout)["errors"]] == [2, 2, 4]
    assert "beyond" not in done.stderr
    path.write_text(path.read_text().replace("b,2048", "b,4096"))
    done = simsched("application", "predict-plans", str(path), "--hardware", str(out))
    assert (
        "outside the range of the profile's fit, where its errors say little: hidden 4096 (measured: 1024 to 2048)\n"
        in (done.stderr)
    )


def test_one_plan_measured_twice_is_no_choice(simsched, tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text(
        "".join(STEPS.format(1, 2, 3, 4).splitlines(keepends=True)[:2]) + "a,1024,8,16,1024,8,1,1,8,4,64,2,,\n"
    )
    done = simsched("application", "predict-plans", str(path), "--hardware", "h100", "--json")
    assert [one["ranked"] for one in json.loads(done.stdout)["errors"]] == [None]


def test_a_run_tells_that_a_model_lies_outside_the_steps_to_which_its_profile_is_fitted(simsched, tmp_path):
    jobs, experiment = tmp_path / "jobs.csv", tmp_path / "mine.yaml"
    content = yaml.safe_load(CLUSTER) | {
        "workload": {"path": str(jobs), "recipe": "replay", "runtime_from": "application"}
    }
    for gpu_type in ("a100", "h100"):
        content["cluster"]["gpu_type"] = gpu_type
        jobs.write_text(f"job_id,submit_time,num_gpus,duration,application,gpu_types\n1,0,8,100,llama2-7b,{gpu_type}\n")
        experiment.write_text(yaml.safe_dump(content))
        done = simsched("run", str(experiment), "--out", str(tmp_path / gpu_type), "--in-process", "--no-plots")
        assert done.exit_code == 0, done.output
        told = "application 'llama2-7b' on a100: outside the range of the profile's fit, where its errors say little: "
        assert (told + "seq 4096 (measured: 2048)" in done.stderr) == (gpu_type == "a100"), done.stderr


def test_a_number_that_no_row_tells_is_as_expected(simsched, tmp_path):
    """Steps on one node say nothing of the network, whatever the profile held from a fit before."""
    begin, path, out = tmp_path / "begin.yaml", tmp_path / "steps.csv", tmp_path / "mine.yaml"
    begin.write_text(_fitting(shipped_hardware()["h100"], {"efficiency": 0.8, "network_share": 0.5}))
    path.write_text(STEPS.format(1, 1, 1, 1))
    done = simsched("application", "fit-plans", str(path), "--hardware", str(begin), "--out", str(out))
    assert done.exit_code == 0, done.output
    assert find_hardware(str(out)).profile.network_share == pytest.approx(0.5)


def _fitting(document, names):
    from simsched.applications.plans import hardware_text

    return hardware_text(document.model_copy(update={"fitted": names, "errors": None}))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("a,1024,8,16,1024,8,1,1,8", "a,1024,8,16,1024,9,1,1,8", "tp x pp x cp x dp is 8, but 'gpus' is 9"),
        ("a,1024,8,16,1024,8,1,1,8,4,64", "a,1024,8,16,1024,8,1,1,8,4,65", "65 is not divisible"),
        ("a,1024", "a,x", "column 'hidden' is 'x'; give a whole number from 1"),
    ],
)
def test_a_wrong_row_is_named_by_its_line(simsched, tmp_path, old, new, reason):
    path = tmp_path / "steps.csv"
    path.write_text(STEPS.format(1, 1, 1, 1).replace(old, new, 1))
    done = simsched("application", "predict-plans", str(path), "--hardware", "h100")
    assert done.exit_code == 2
    assert "steps.csv:2" in done.output
    assert reason in done.output


def test_a_wrong_profile_is_refused(simsched, tmp_path):
    from simsched.applications.plans import hardware_text

    text = hardware_text(shipped_hardware()["h100"])
    assert find_hardware(str(_written(tmp_path, text))) == shipped_hardware()["h100"]
    for change, reason in (
        ({"profile": {"efficiency": 0}}, "must be above 0"),
        ({"fitted": ["speed"]}, "may name"),
        ({"profile": {"speed": 2}}, "speed"),
    ):
        data = yaml.safe_load(text)
        for key, value in change.items():
            data[key] = {**data[key], **value} if isinstance(value, dict) else value
        path = _written(tmp_path, yaml.safe_dump(data))
        done = simsched("application", "plans", "llama2-7b", "--gpus", "8", "--hardware", str(path))
        assert done.exit_code == 2, done.output
        assert reason in done.output


def _written(folder, text):
    path = folder / "profile.yaml"
    path.write_text(text)
    return path


def test_a_model_of_ones_own(simsched, tmp_path):
    path = tmp_path / "mine.yaml"
    text = (
        "format: simsched-model/1\nname: mine\n"
        "shape: {layers: 8, hidden: 1024, mlp: 4096, heads: 16, kv_heads: 16, vocabulary: 1000, sequence: 1024}\n"
        "global_batch: 64\nhardware: {h100: h100}\n"
    )
    path.write_text(text)
    done = simsched("application", "plans", str(path), "--gpus", "8", "--hardware", "h100", "--no-plots")
    assert done.exit_code == 0, done.output
    for old, new, reason in (
        ("kv_heads: 16", "kv_heads: 3", "key-value heads"),
        ("{h100: h100}", "{h100: h200}", "no such profile is shipped"),
        ("global_batch: 64", "global_batch: 0", "global_batch"),
    ):
        path.write_text(text.replace(old, new))
        done = simsched("application", "plans", str(path), "--gpus", "8", "--hardware", "h100", "--no-plots")
        assert done.exit_code == 2
        assert reason in done.output


def test_weak_scaling_doubles_gpus_and_batch_together(simsched, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["application", "plans", "llama2-7b", "--gpus", "8", "--hardware", "h100", "--weak-scaling", "2"]
    grown = json.loads(simsched(*command, "--no-plots", "--json").stdout)["weak_scaling"]
    assert [(one["gpus"], one["global_batch"]) for one in grown] == [(8, 1024), (16, 2048), (32, 4096)]
    # the work of a GPU stays: what a step takes longer, it loses of its share of the peak
    assert grown[2]["mfu"] / grown[0]["mfu"] == pytest.approx(grown[0]["step_s"] / grown[2]["step_s"])
    done = simsched(*command)
    assert "As GPUs and global batch double together:" in done.output
    assert (tmp_path / "figures" / "llama2-7b-weak-scaling.png").is_file()
