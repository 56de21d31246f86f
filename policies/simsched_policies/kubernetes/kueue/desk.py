"""A run of manifests: its queues and rules, its jobs as workloads with pods, and the nodes for these."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from simsched.errors import InputError, Problem
from simsched.manifests import HOSTNAME, NodeFacts, in_service, is_gpu
from simsched.model import Allocation, Cluster
from simsched.policy import JobView
from simsched_policies.kubernetes.kueue.cycle import Entry, run_cycle
from simsched_policies.kubernetes.kueue.explain import message
from simsched_policies.kubernetes.kueue.machines import Chances, Machines, Pods, allocation_of, grown, scaled
from simsched_policies.kubernetes.kueue.model import (
    Asking,
    FlavourResource,
    PodSet,
    Rule,
    Rules,
    Setup,
    Stop,
    Workload,
)
from simsched_policies.kubernetes.kueue.objects import Declared, declared
from simsched_policies.kubernetes.kueue.tree import QuotaTree

_MOST_NAMED = 20


class Desk:
    """The declarations of the manifests: queues, rules, what jobs ask for, where they go.

    Raises `InputError` for invalid manifests.
    """

    def __init__(
        self, path: str, allow: Collection[str] = (), *, grows: bool = False, resumes: Declared | None = None
    ) -> None:
        """Read the manifests; if they grow, nodes and quotas follow the cluster.

        A cluster that `resumes` is given as it was read, and its admitted workloads run from the start.
        """
        self._path, self._grows, self._resumes = path, grows, resumes is not None
        self._declared: Declared = declared(Path(path), allow) if resumes is None else resumes
        setup = self._declared.setup
        self.setup: Setup = setup
        self._queues = {(one.namespace, one.name): one for one in setup.local_queues}
        self._facts: list[NodeFacts] = []
        self._up: tuple[bool, ...] = ()
        self._machines = Machines((), setup)
        self._held: dict[str, tuple[Pods, ...]] = {}
        #: The same nodes with nothing on them, and the quotas with nothing in use.
        self._idle = self._machines
        self._unused = self.tree()
        #: Why workloads of a shape could never run, empty if they could.
        self._never: dict[object, str] = {}
        #: By queue and kind: pods that fit.
        self._fits: dict[Hashable, list[PodSet]] = {}

    def tree(self) -> QuotaTree:
        """Return the unused tree of quotas, and the topologies of the nodes as they are."""
        return self._tree(self._machines)

    def _tree(self, machines: Machines) -> QuotaTree:
        tree = QuotaTree(self.setup.queues, self.setup.cohorts)
        tree.use(machines.topologies)
        return tree

    def rules(self, used: Callable[[Asking], float]) -> Rules:
        """Return the rules of a cycle; `used` returns the usage of a local queue under admission fair sharing."""
        setup, by_usage = self.setup, {one.name for one in self.setup.queues if one.by_usage}
        return Rules(
            setup.strategies is not None,
            tuple(Rule(one) for one in setup.strategies or ()),
            (lambda asking: used(asking) if asking.queue in by_usage else 0.0) if setup.fair_admission else None,
            setup.flavours,
            setup.namespaces,
            setup.ignore_undeclared,
            setup.gates,
            setup.topologies,
            setup.checks,
        )

    def begin(self, cluster: Cluster) -> None:
        """Match the nodes of the cluster with the declared ones; raises `InputError` if they differ."""
        nodes = in_service(self._declared.nodes)
        if self._grows and nodes:
            before, nodes = nodes, grown(nodes, cluster)
            self.setup = scaled(self._declared.setup, before, nodes)
        if not nodes:
            nodes = list(_made_up(cluster, self.setup))
        elif [node.gpus for node in nodes] != [node.gpus for node in cluster.nodes]:
            message = f"declares {len(nodes)} nodes with GPUs, and the cluster has {len(cluster.nodes)}, or others"
            raise InputError(Problem(self._path, message, "give both the same nodes in the same order"))
        # Nodes without GPUs take pods too, although a cluster has none: they follow the nodes that it has.
        self._facts = [*nodes, *(one for one in self._declared.nodes if one.takes_pods and not one.gpus)]
        self._up = (True,) * len(nodes)
        self._machines = Machines(self._facts, self.setup)
        self._idle = Machines(self._facts, self.setup)
        self._unused = self._tree(self._idle)

    def refresh(self, up: Sequence[bool], tree: QuotaTree) -> None:
        """Record which nodes are up, and update the tree."""
        if tuple(up) != self._up:
            self._up = tuple(up)
            others = (True,) * (len(self._facts) - len(self._up))
            self._machines = Machines(self._facts, self.setup, (*self._up, *others))
            for pods in self._held.values():
                self._machines.count(pods, 1)
            tree.use(self._machines.topologies)

    def asking(self, number: str, job: JobView) -> Asking:
        """Return what a job asks for; raises `InputError` for a job without a manifest."""
        one = self._declared.jobs.get(job.id)
        if one is None:
            message, remedy = f"has no workload '{job.id}'", "replay the jobs of the same manifests"
            raise InputError(Problem(self._path, message, remedy))
        queue = self._queues[one.namespace, one.local_queue]
        stopped = "" if queue.stop is Stop.NONE else f"the LocalQueue {queue.namespace}/{queue.name} is stopped"
        return Asking(
            number,
            queue.queue,
            # Under a rigid engine a job starts with all of its pods.
            tuple(replace(pods, min_count=None) for pods in one.pod_sets),
            one.priority,
            job.request.submit_time_s if one.created_s is None or not self._resumes else one.created_s,
            namespace=one.namespace,
            local_queue=f"{queue.namespace}/{queue.name}",
            invalid=stopped,
            ready_s=one.ready_s,
        )

    def place(self, entry: Entry) -> Allocation | str:
        """Reserve room on nodes for an admitted workload and return its GPUs, or why there is none."""
        found = self._machines.place(entry.asking.pod_sets, entry.assignment.assigned())
        if isinstance(found, str):
            return found
        self._held[entry.asking.id] = found
        return allocation_of(found, len(self._up))

    def resume(self, asking: Asking, job_id: str) -> tuple[Workload, Allocation] | None:
        """Return what a job held when the manifests were written, and its GPUs; None if it waited.

        Raises `InputError` if the nodes have no room for it.
        """
        stands = self._declared.jobs[job_id].stands
        if not self._resumes or stands is None or not stands.granted:
            return None
        found = self._machines.resume(asking.pod_sets, stands.granted)
        if isinstance(found, str):
            unknown = any(one.places is None and not one.hosts for one in stands.granted)
            add = "add kubectl get pods -A -o yaml, which says where they are"
            remedy = add if unknown else "write all objects at one moment: kubectl get ... -o yaml"
            raise InputError(Problem(self._path, f"workload {job_id} is admitted, but {found}", remedy))
        assigned, self._held[asking.id] = found
        usage: Counter[FlavourResource] = Counter()
        for one in assigned:
            usage.update({(flavour, name): one.requests.get(name, 0) for name, flavour in one.flavours.items()})
        held = Workload(asking.id, asking.queue, usage, asking.priority, asking.created_s, stands.since_s)
        return replace(held, assigned=assigned), allocation_of(self._held[asking.id], len(self._up))

    def chances(self, entry: Entry) -> tuple[Chances, list[int]] | None:
        """Return what must fit on nodes before a workload without room is tried again, None for anything."""
        groups = self._unused.queues[entry.asking.queue].groups
        lacks = self._machines.lacks(entry.asking.pod_sets, {name: group[1] for name, group in groups.items()})
        return None if lacks is None else (self._machines.chances, lacks)

    def give_back(self, number: str) -> None:
        """Free the nodes of a workload."""
        self._machines.count(self._held.pop(number, ()), -1)

    def weight(self, local_queue: str) -> float:
        """Return the weight of a local queue, given by namespace and name."""
        namespace, _, name = local_queue.partition("/")
        return self._queues[namespace, name].weight

    def delay_s(self, entry: Entry) -> float:
        """Return the seconds after which the admission checks of a workload are ready."""
        queue = next(one for one in self.setup.queues if one.name == entry.asking.queue)
        flavours = {flavour for flavour, _ in entry.usage}
        asked = [name for name, only in queue.checks.items() if not only or only & flavours]
        return max((self.setup.checks[name].delay_s for name in asked if name in self.setup.checks), default=0.0)

    def hopeless(self, jobs: Sequence[JobView]) -> Mapping[str, str]:
        """Return the jobs that could not be admitted even to an empty cluster, and why."""
        found: dict[str, str] = {}
        for job in jobs:
            asking = self.asking("0", job)
            stands = self._declared.jobs[job.id].stands if self._resumes else None
            if stands is not None and stands.granted:
                continue
            shape = (asking.queue, asking.namespace, asking.invalid, tuple(pods.key for pods in asking.pod_sets))
            if shape not in self._never:
                self._never[shape] = "" if self._smaller(asking) else self._why_never(asking)
            if self._never[shape]:
                found[job.id] = self._never[shape]
        return found

    def _smaller(self, asking: Asking) -> bool:
        """Return whether pods of one set ask for no more than such that fit, all on the only flavour of their queue."""
        if len(self._unused.queues[asking.queue].flavours) > 1 or len(asking.pod_sets) > 1:
            return False
        (pods,) = asking.pod_sets
        return any(
            pods.count <= one.count and all(one.requests.get(name, 0) >= n for name, n in pods.requests.items())
            for one in self._fits.get(_of_kind(asking), ())
        )

    def _why_never(self, asking: Asking) -> str:
        outcome = run_cycle(self._unused, [asking], self.rules(lambda asking: 0.0))
        if not outcome.admitted:
            return next((message(entry) for entry in (*outcome.refused, *outcome.parked)), "is not admitted")
        entry = outcome.admitted[0]
        found = self._idle.place(asking.pod_sets, entry.assignment.assigned())
        if isinstance(found, str):
            return f"no room on nodes, even if nothing else is there: {found}"
        self._idle.count(found, -1)
        self._fits.setdefault(_of_kind(asking), []).append(asking.pod_sets[0])
        return ""

    def refuse(self, hopeless: Mapping[str, str]) -> InputError:
        """Return the error of workloads that can never run."""
        remedy = "raise the quota, mend the manifest, or let them be cancelled with --allow never-admitted"
        problems = [Problem(f"workload {name}", f"can never run: {why}", remedy) for name, why in hopeless.items()]
        more = [Problem("", f"and {len(problems) - _MOST_NAMED} more")] if len(problems) > _MOST_NAMED else []
        return InputError(*problems[:_MOST_NAMED], *more)


def _of_kind(asking: Asking) -> Hashable:
    """Return a key shared by workloads of a queue that differ in the amounts and the number of their pods alone."""
    pods = asking.pod_sets[0]
    wish = None if pods.topology is None else (pods.topology, pods.count)
    return (asking.queue, asking.namespace, asking.invalid, frozenset(pods.requests), pods.where, wish)


def _made_up(cluster: Cluster, setup: Setup) -> Iterator[NodeFacts]:
    """Return nodes for a cluster that no manifest describes.

    Nodes whose GPU type is named like a flavour belong to that flavour; all nodes belong to flavours named like no
    type.
    """
    flavours = setup.flavours or {}
    types = {node.gpu_type for node in cluster.nodes}
    for node in cluster.nodes:
        mine = [one for one in flavours.values() if one.name == node.gpu_type or one.name not in types]
        labels = {key: value for one in mine for key, value in one.labels.items()}
        torn = next((one for one in mine if not one.labels.items() <= labels.items()), None)
        if torn is not None or any(one.topology for one in mine):
            what = "have topologies" if torn is None else "want different labels of the same nodes"
            raise InputError(
                Problem("--cluster", f"says nothing of labels, and flavors {what}", "add kubectl get nodes -o json")
            )
        allocatable = dict.fromkeys(_gpu_names(setup), node.gpus)
        allocatable |= {} if node.cpu_milli is None else {"cpu": node.cpu_milli}
        allocatable |= {} if node.memory_mib is None else {"memory": node.memory_mib << 20}
        yield NodeFacts(f"node-{node.index}", {HOSTNAME: f"node-{node.index}", **labels}, (), allocatable)


def _gpu_names(setup: Setup) -> list[str]:
    return sorted({name for queue in setup.queues for _, name in queue.quotas if is_gpu(name)}) or ["nvidia.com/gpu"]
