"""The commands of docs/how-to/kubernetes.md run as they stand, on the manifests that ship."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("in_this_process")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "kubernetes.md"


def commands() -> list[list[str]]:
    """Return the commands of the page, in their order."""
    blocks = re.findall(r"(?ms)^```\w*\n(.*?)^```$", PAGE.read_text(encoding="utf-8"))
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("simsched ")]
    return [words for line in lines if (words := shlex.split(line)[1:])[0] not in ELSEWHERE]


#: Commands on a dump of the reader's, which have tests of their own.
ELSEWHERE = {"admit", "anonymise", "forecast"}
#: What the commands say; those that take long are run without pictures.
SAID = {
    "new": r"manifests/workloads\.yaml",
    "validate": r"manifests: valid; 1 cell of 30 jobs",
    "run": r"30 jobs, 1 seed, 1 policy on 96 GPUs.*nothing left out",
    "report": r"results/manifests/report\.html",
    "why": r"vision/vision-08 \(queue vision: .*admitted.*insufficient unused quota for nvidia\.com/gpu in flavor",
    "what-if": r"^Unjudged: no waits are recorded.*NOT JUDGED.*(gains|loses|as before)",
    "capacity": r"NOT JUDGED.*are enough",
}


def test_the_page_shows_every_command() -> None:
    assert {words[0] for words in commands()} == SAID.keys()


def test_the_commands_of_the_page_run_as_they_stand(simsched: Callable, few_nodes_tried: None) -> None:
    for words in commands():
        done = simsched(*words, *(["--no-plots"] if words[0] in ("run", "capacity", "what-if") else []))
        assert done.exit_code == 0, (words, done.output)
        assert re.search(SAID[words[0]], done.stdout, re.DOTALL), (words, done.stdout)
    page = Path("results/manifests/report.html").read_text(encoding="utf-8")
    assert "Reclaimed: GPUs taken back" in page
    assert "manifests: GPUs in use by rack" in page


NODES = """
apiVersion: v1
kind: Node
metadata: {name: n, annotations: {simsched/count: "2"}}
status: {allocatable: {cpu: 8, nvidia.com/gpu: 4}}
"""
QUEUES = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: q}
spec:
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: any, resources: [{name: nvidia.com/gpu, nominalQuota: 4}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: l}
spec: {clusterQueue: q}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: high}
value: 7
"""


def job(name: str, gpus: int, submit_s: int, duration: str = "100", more: str = "", pods: int = 1) -> str:
    notes = f'simsched/submit-s: "{submit_s}"' + (f', simsched/duration-s: "{duration}"' if duration else "")
    labels = f"kueue.x-k8s.io/queue-name: l{more}"
    return (
        f"---\napiVersion: batch/v1\nkind: Job\nmetadata: {{name: {name}, labels: {{{labels}}}, "
        f"annotations: {{{notes}}}}}\nspec: {{parallelism: {pods}, template: {{spec: {{containers: "
        f"[{{name: c, resources: {{requests: {{nvidia.com/gpu: {gpus}}}}}}}]}}}}}}\n"
    )


@pytest.fixture
def small(folder: Path) -> Path:
    """Make manifests of two nodes of four GPUs and a queue of four, of which quota binds."""
    place = Path("small")
    place.mkdir()
    (place / "nodes.yaml").write_text(NODES)
    (place / "queues.yaml").write_text(QUEUES)
    return place


def times(name: str = "small") -> dict[str, tuple[float, float]]:
    """Return start and end of the jobs of a run."""
    from simsched.results import read_run

    jobs = read_run(Path("results") / name).cells[0].jobs
    return {row.job_id: (row.start_time_s, row.end_time_s) for row in jobs.itertuples()}


def test_quota_binds_where_nodes_do_not(small: Path, simsched: Callable) -> None:
    # 3 GPUs of 4 from 0 to 100: the second waits for quota though 5 GPUs are free; the third, of 1 GPU, does not.
    (small / "w.yaml").write_text(job("a", 3, 0) + job("b", 2, 10) + job("c", 1, 20))
    done = simsched("run", "small", "--no-plots")
    assert done.exit_code == 0, done.output
    assert times() == {"default/a": (0, 100), "default/b": (100, 200), "default/c": (20, 120)}
    said = json.loads(simsched("why", "results/small", "--workload", "b", "--json").stdout)["rows"]
    # What ends after the last decision is not recorded.
    assert [(row["time_s"], row["event"]) for row in said] == [("10", "Pending"), ("100", "Admitted")]
    assert "insufficient unused quota for nvidia.com/gpu in flavor any, 1 more needed" in said[0]["message"]


def test_priority_preempts_and_says_why(small: Path, simsched: Callable) -> None:
    high = ", kueue.x-k8s.io/priority-class: high"
    (small / "w.yaml").write_text(job("a", 4, 0) + job("b", 4, 30, more=high))
    assert simsched("run", "small", "--no-plots").exit_code == 0
    assert times() == {"default/a": (0, 200), "default/b": (30, 130)}  # a keeps its 30 s and goes on for 70
    said = simsched("why", "results/small", "--workload", "default/a").stdout
    assert "InClusterQueue: Preempted to accommodate a workload (default/b) due to prioritization" in said
    assert "admitted 2 times, preempted once" in said


def test_durations_come_from_a_log_by_name_a_record_or_a_distribution(small: Path, simsched: Callable) -> None:
    ran = job("c", 1, 0, "") + 'status: {startTime: "2026-01-01T00:00:00Z", completionTime: "2026-01-01T00:00:40Z"}\n'
    (small / "w.yaml").write_text(job("a", 1, 0, "10") + job("b", 1, 0, "") + ran + job("d", 1, 0, ""))
    Path("log.csv").write_text("submit_time,num_gpus,duration,job_id\n0,1,20,b\n0,1,99,a\n")
    refused = simsched("run", "small", "--durations", "log.csv")
    assert refused.exit_code == 2
    assert "Job default/d: does not say how long it runs" in refused.output
    assert simsched("run", "small", "--durations", "log.csv", "--duration", "fixed:30", "--no-plots").exit_code == 0
    assert {name: end for name, (_, end) in times().items()} == {
        "default/a": 10, "default/b": 20, "default/c": 40, "default/d": 30,
    }  # fmt: skip


@pytest.mark.parametrize("text", ["normal:3", "fixed:0", "uniform:3,2"])
def test_what_is_no_distribution_is_refused(small: Path, simsched: Callable, text: str) -> None:
    (small / "w.yaml").write_text(job("a", 1, 0))
    done = simsched("run", "small", "--duration", text)
    assert done.exit_code == 2
    assert "--duration" in done.output


def test_a_cluster_is_declared_where_there_are_no_nodes(small: Path, simsched: Callable) -> None:
    (small / "nodes.yaml").unlink()
    (small / "w.yaml").write_text(job("a", 4, 0))
    refused = simsched("run", "small")
    assert refused.exit_code == 2
    assert "state --cluster FILE" in refused.output
    Path("cluster.yaml").write_text("nodes: 1\ngpus_per_node: 4\ngpu_type: h100\n")
    assert simsched("run", "small", "--cluster", "cluster.yaml", "--no-plots").exit_code == 0
    assert times() == {"default/a": (0, 100)}


def test_jobs_that_could_never_run_stop_the_run_unless_allowed(small: Path, simsched: Callable) -> None:
    (small / "w.yaml").write_text(job("a", 4, 0) + job("b", 4, 0, pods=2))
    refused = simsched("run", "small")
    assert refused.exit_code == 2
    assert "workload default/b: can never run" in refused.output
    assert "maximum capacity (4)" in refused.output
    assert simsched("run", "small", "--allow", "never-admitted", "--no-plots").exit_code == 0
    assert times()["default/a"] == (0, 100)


def test_an_admission_check_delays_the_start(small: Path, simsched: Callable) -> None:
    check = (
        "---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: AdmissionCheck\nmetadata: {name: ok, annotations: "
        '{simsched/delay-s: "25"}}\nspec: {controllerName: example.com/ok}\n'
    )
    strategy = "  namespaceSelector: {}\n  admissionChecksStrategy: {admissionChecks: [{name: ok}]}\n"
    (small / "queues.yaml").write_text(QUEUES.replace("  namespaceSelector: {}\n", strategy) + check)
    (small / "w.yaml").write_text(job("a", 4, 0) + job("b", 4, 5))
    assert simsched("run", "small", "--no-plots").exit_code == 0
    assert times() == {"default/a": (25, 125), "default/b": (150, 250)}


def test_a_change_of_an_object_answers_what_if(small: Path, simsched: Callable) -> None:
    (small / "w.yaml").write_text(job("a", 4, 0, "7200") + job("b", 4, 0, "7200"))
    quota = "ClusterQueue/q.spec.resourceGroups.0.flavors.any.resources.nvidia.com/gpu.nominalQuota=8"
    done = simsched("what-if", "small", "--change", quota, "--no-plots", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    every = next(one for one in said["effects"] if one["before"]["group"] == "all")
    assert (every["before"]["mean_wait_s"], every["after"]["mean_wait_s"], every["verdict"]) == (3600, 0, "gains")
    assert said["gate"]["open"] is False
    Path("more.yaml").write_text(QUEUES.split("---")[1].replace("nominalQuota: 4", "nominalQuota: 8"))
    again = simsched("what-if", "small", "--change", "more.yaml", "--no-plots", "--json")
    assert json.loads(again.stdout)["effects"] == said["effects"]
    wrong = simsched("what-if", "small", "--change", quota.replace("/q.", "/p."), "--no-plots")
    assert wrong.exit_code == 2
    assert "there is no ClusterQueue called so; did you mean 'q'?" in wrong.output or "known: q" in wrong.output


def test_nodes_that_are_added_bring_quota(small: Path, simsched: Callable) -> None:
    (small / "w.yaml").write_text(job("a", 4, 0, "7200") + job("b", 4, 0, "7200"))
    done = simsched("capacity", "small", "--target", "queueing_mean_h<=0", "--no-plots", "--json")
    assert done.exit_code == 0, done.output
    (answer,) = json.loads(done.stdout)["answers"]
    assert answer["nodes"] == 4  # a quota of 4 GPUs for 2 nodes is one of 8 for 4


def test_manifests_are_a_trace_for_any_policy(small: Path, simsched: Callable) -> None:
    (small / "w.yaml").write_text(job("a", 3, 0) + job("b", 2, 10))
    assert simsched("run", "small", "-o", "policies=[{name: fifo}]", "--name", "fifo", "--no-plots").exit_code == 0
    assert times("fifo") == {"default/a": (0, 100), "default/b": (10, 110)}
    said = simsched("trace", "info", "small", "--no-plots")
    assert said.exit_code == 0, said.output


def test_options_for_manifests_are_refused_elsewhere(simsched: Callable) -> None:
    done = simsched("run", "quickstart", "--duration", "fixed:3")
    assert done.exit_code == 2
    assert "--duration is for manifests" in done.output


def test_pods_without_gpus_go_to_nodes_without_gpus(small: Path, simsched: Callable) -> None:
    # One CPU node of 2 cores, of which each workload takes 2: the second waits, though both nodes of GPUs are idle.
    cpu = 'apiVersion: v1\nkind: Node\nmetadata: {name: c, labels: {kind: cpu}}\nstatus: {allocatable: {cpu: "2"}}\n'
    (small / "nodes.yaml").write_text(f"{NODES}---\n{cpu}")
    pods = "{spec: {nodeSelector: {kind: cpu}, containers: [{name: c, resources: {requests: {cpu: 2}}}]}}"
    quota = "---\n" + QUEUES.replace("[nvidia.com/gpu]", "[cpu]").replace(
        "name: nvidia.com/gpu, nominalQuota: 4", "name: cpu, nominalQuota: 9"
    )
    (small / "queues.yaml").write_text(quota)
    text = job("a", 1, 0) + job("b", 1, 10)
    (small / "w.yaml").write_text(re.sub(r"template: .*\}\}$", f"template: {pods}}}", text, flags=re.MULTILINE))
    done = simsched("run", "small", "--no-plots")
    assert done.exit_code == 0, done.output
    assert "1 node without GPUs" in done.stderr
    assert times() == {"default/a": (0, 100), "default/b": (100, 200)}
    said = simsched("why", "results/small", "--workload", "b").stdout
    assert "quota is there, and no room on nodes" in said


def test_a_workload_without_a_queue_is_left_out_where_it_is_allowed(small: Path, simsched: Callable) -> None:
    name = "kueue.x-k8s.io/queue-name"
    (small / "w.yaml").write_text(job("a", 1, 0) + job("b", 1, 0).replace(f"{name}: l", ""))
    refused = simsched("run", "small")
    assert refused.exit_code == 2
    assert "names no queue, so that Kueue would let it run beside all quotas" in refused.output
    done = simsched("run", "small", "--allow", f"Job.metadata.labels.{name}", "--no-plots")
    assert done.exit_code == 0, done.output
    assert "left out: 1 without a queue" in done.stderr
    assert times() == {"default/a": (0, 100)}


KAI_QUEUE = """
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: team}
spec:
  resources:
    {cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}, gpu: {quota: 4, limit: 4, overQuotaWeight: 1}}
---
apiVersion: scheduling.run.ai/v2alpha2
kind: PodGroup
metadata: {name: a}
spec: {queue: team, minMember: 1}
"""


def test_a_stream_of_objects_runs_under_kai_with_its_own_queue(folder: Path, simsched: Callable) -> None:
    """The limit of 4 GPUs makes one of two jobs of 4 wait, though there are 8."""
    labelled = job("b", 4, 10).replace("kueue.x-k8s.io/queue-name: l", "kai.scheduler/queue: team")
    text = NODES + "---" + KAI_QUEUE + job("a", 4, 0) + labelled
    done = simsched("run", "-", "--policy", "kai", "--no-plots", stdin=text)
    assert done.exit_code == 0, done.output
    assert times("stdin") == {"default/a": (0, 100), "default/b": (100, 200)}
    assert "holds no Kubernetes object" in simsched("run", "-", stdin="").output
