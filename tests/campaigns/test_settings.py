"""Settings of Slurm and manifests of Kubernetes with mutations are read, or refused with a message."""

from __future__ import annotations

import json
from datetime import datetime

import pytest
import yaml

from simsched.errors import InputError
from simsched.workload.readers import read_nodes, read_settings
from tests.campaigns import tries
from tests.campaigns.command import ended_well, here
from tests.campaigns.test_files import CELLS, TIMES, VALUES, cut, replaced, with_insertion, with_other_bytes
from tests.policies.test_slurm_settings import ASSOC, CONF, QOS, RESERVATION

PARTITION = """\
PartitionName=gpu
   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL
   DefaultTime=01:00:00 MaxNodes=UNLIMITED MaxTime=2-00:00:00 MinNodes=0 Nodes=g[1-2]
   PriorityJobFactor=1 PriorityTier=10 OverSubscribe=NO State=UP TotalCPUs=128 TotalNodes=2
"""
NODES = "".join(f"NodeName=g{i} CPUTot=64 RealMemory=512000 Gres=gpu:a100:8 Partitions=gpu\n" for i in (1, 2))
LOG = "JobID|Submit|Start|End|State|AllocTRES|Timelimit|Partition|Account|User|QOS\n" + "".join(
    f"{i}|2024-03-01T10:0{i}:00|2024-03-01T10:1{i}:00|2024-03-01T11:1{i}:00|COMPLETED|gres/gpu=2|02:00:00|gpu|vision|ann|normal\n"
    for i in range(6)
)
SETTINGS = {"slurm.conf": CONF, "qos.txt": QOS, "assoc.txt": ASSOC, "resv.txt": RESERVATION, "part.txt": PARTITION}
ORIGINS = (datetime(2024, 3, 1), datetime(1970, 1, 1), datetime(2286, 1, 1), None)
ODD = (
    *CELLS,
    *TIMES,
    "high",
    "node=inf",
    "gres/gpu=nan",
    "9" * 5000,
    "1e400",
    "²",
    "8m",
    "UNLIMITED",
    "parent",
    "1-",
    ":1",
)


def with_other_words(content, chance):
    return replaced(content, chance, r"[^,|=\s]+", ODD, (1, 1, 2, 5))


def without_words(content, chance):
    return replaced(content, chance, r"\w+=\S*|[^|\n]+", ("",), (1, 2))


CHANGES = (*[with_other_words] * 5, without_words, with_other_bytes, cut, with_insertion)


@tries(8, 300)
def test_changed_settings_of_slurm_are_read_or_refused(tmp_path, chance, record_property):
    name = chance.choice([*SETTINGS, "nodes.txt"])
    texts = {**SETTINGS, "nodes.txt": NODES}
    content = texts[name].encode()
    for _ in range(chance.choice((1, 1, 2))):
        content = chance.choice(CHANGES)(content, chance)
    for other, text in texts.items():
        (tmp_path / other).write_bytes(content if other == name else text.encode())
    (tmp_path / "log.txt").write_text(LOG)
    chosen = [name] if name in SETTINGS else list(SETTINGS)
    if chance.random() < 0.9:
        try:
            found = read_settings([tmp_path / one for one in chosen])
            nodes = [one.name for one in read_nodes(tmp_path / "nodes.txt").nodes]
            found.params_from(
                chance.choice(ORIGINS), nodes, chance.choice(("UTC", "Europe/Berlin", "Pacific/Apia")), 86400
            )
        except InputError:
            record_property("outcome", "refused with a message")
            return
        record_property("outcome", "read")
        return
    conf = [part for one in chosen for part in ("--conf", one)]
    done = here(tmp_path, "calibrate", "log.txt", "--cluster", "nodes.txt", *conf, "--no-plots", "--json")
    ended_well(done, (name, content))
    record_property("outcome", "read, and replayed" if done.returncode == 0 else "refused with a message")


MANIFEST = """\
apiVersion: kueue.x-k8s.io/v1beta1
kind: ResourceFlavor
metadata: {name: a100}
spec: {nodeLabels: {gpu: a100}, nodeTaints: [{key: gpu, value: "yes", effect: NoSchedule}]}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: vision}
spec:
  cohort: all
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority, reclaimWithinCohort: Any}
  resourceGroups:
  - coveredResources: [cpu, memory, nvidia.com/gpu]
    flavors:
    - name: a100
      resources:
      - {name: cpu, nominalQuota: 64}
      - {name: memory, nominalQuota: 512Gi}
      - {name: nvidia.com/gpu, nominalQuota: 8, borrowingLimit: 4}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: LocalQueue
metadata: {name: main, namespace: default}
spec: {clusterQueue: vision}
---
apiVersion: v1
kind: Node
metadata: {name: n, labels: {gpu: a100}, annotations: {simsched/count: "2"}}
spec: {taints: [{key: gpu, value: "yes", effect: NoSchedule}]}
status: {allocatable: {cpu: "64", memory: 512Gi, nvidia.com/gpu: "8", pods: 110}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: train
  creationTimestamp: "2026-01-31T12:00:00Z"
  labels: {kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/max-exec-time-seconds: "7200"}
  annotations: {simsched/duration-s: "3600", simsched/submit-s: "60"}
spec:
  parallelism: 2
  completions: 2
  activeDeadlineSeconds: 7200
  template:
    spec:
      nodeSelector: {gpu: a100}
      tolerations: [{key: gpu, operator: Exists}]
      containers:
      - {name: main, image: "busybox:1", resources: {requests: {cpu: 1500m, memory: 8Gi, nvidia.com/gpu: 1}}}
"""
QUANTITIES = ("8m", "1e400", "1e300", "٣", "-1", "1.5", ".5", "1e3", "9" * 5000, "1Zi", "", "1_0", "0x10", 10**30, 1.5)
MOMENTS = (
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "2026-01-31",
    "yesterday",
    "2026-01-31T12:00:00.5Z",
)


def test_the_manifests_run_unchanged(tmp_path):
    (tmp_path / "m.yaml").write_text(MANIFEST, encoding="utf-8")
    assert here(tmp_path, "run", "m.yaml", "--in-process", "--no-plots").returncode == 0


@tries(8, 300)
def test_changed_manifests_are_read_or_refused(tmp_path, chance, record_property):
    documents = list(yaml.safe_load_all(MANIFEST))
    for _ in range(chance.choice((1, 1, 2, 3))):
        holder, key = documents, None
        while isinstance(holder, dict | list) and holder:
            key = chance.choice(sorted(holder) if isinstance(holder, dict) else range(len(holder)))
            if not isinstance(holder[key], dict | list) or not holder[key] or chance.random() < 0.1:
                break
            holder = holder[key]
        if holder is not documents:
            holder[key] = chance.choice((*VALUES, *QUANTITIES, *MOMENTS, *CELLS))
    if chance.random() < 0.5:
        (tmp_path / "m.json").write_text(
            json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}, indent=1), encoding="utf-8"
        )
    else:
        text = yaml.safe_dump_all(documents)
        if chance.random() < 0.2:
            text = text.replace(
                "busybox:1", chance.choice(("!!binary aGk=", "!!set {a}", "!!timestamp 2026-01-31", "*x"))
            )
        (tmp_path / "m.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    path = next(one.name for one in tmp_path.iterdir())
    command = chance.choice((("validate", path), ("run", path, "--in-process", "--no-plots"), ("why", path)))
    done = ended_well(here(tmp_path, *command, seconds=60), (command, documents))
    record_property("outcome", "read" if done.returncode == 0 else "refused with a message")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("nvidia.com/gpu: 1}", "nvidia.com/gpu: 8m}"), ("nvidia.com/gpu: 1}", "nvidia.com/gpu: '1e400'}"),
        ("nvidia.com/gpu: 1}", "nvidia.com/gpu: '٣'}"), ('submit-s: "60"', 'submit-s: "1e300"'),
        ('image: "busybox:1"', "image: !!binary aGk="), ("name: train", 'name: "\\ud800"'),
        ("2026-01-31T12:00:00Z", "0001-01-01T00:00:00+14:00"), ('count: "2"', 'count: "²"'),
    ],
)  # fmt: skip
def test_what_kubernetes_refuses_is_refused(tmp_path, before, after):
    (tmp_path / "m.yaml").write_text(MANIFEST.replace(before, after), encoding="utf-8")
    assert ended_well(here(tmp_path, "validate", "m.yaml"), after).returncode == (2 if before in MANIFEST else 0)
