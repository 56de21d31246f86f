"""`simsched new`: runnable, commented templates of policies, agents, processes and experiments, and samples."""

from __future__ import annotations

import re
from importlib.resources import files
from keyword import iskeyword
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import click

from simsched.cli.options import FORCE, arg, command, opt
from simsched.errors import input_error
from simsched.files import write_text

_POLICY = '''"""{name}: what the policy does, in one sentence."""

from dataclasses import dataclass
from typing import ClassVar

from simsched.policy import Decision, Policy, Traits
from simsched.toolkit.gang import run_in_order


@dataclass
class {kind}(Policy):
    """Runs the jobs with the least attained service first, and favours running jobs by `patience_s`."""

    name: ClassVar[str] = "{name}"
    # rigid: a job gets its requested GPUs or none; with False, the policy may change the number.
    # needs: what the policy knows beyond requests and attained service, e.g. {{REMAINING_WORK}} of
    # simsched.policy.signals. Undeclared signals are absent.
    traits: ClassVar[Traits] = Traits(rigid=True, needs=set())

    # Parameters of an experiment (`params: {{patience_s: 600}}`): they have types and defaults.
    patience_s: float = 300.0

    def decide(self, view, rng):
        # view.jobs: the active jobs by id; view.now_s: the time; view.nodes, view.free, view.up: by node.
        def key(job):
            return job.attained_gpu_s - self.patience_s * job.num_gpus * job.running

        # run_in_order places jobs in this order while they fit. Without it, return
        # Decision({{job_id: ((node, gpus), ...), ...}}); a job that is not named gets no GPUs.
        return Decision(run_in_order(sorted(view.jobs.values(), key=key), view))
'''

_AGENT = '''"""{name}: what the agents do, in one sentence."""

from dataclasses import dataclass
from typing import ClassVar

from simsched.agent import AgentFactory, fixed_agent
from simsched.model import batch_for_target


@dataclass
class OfJob:
    """Picks the batch of one job."""

    limits: object  # the application's: init_batch_size, max_batch_size, min_local_bsz, max_local_bsz
    first: int
    every_epochs: int

    # What policies with needs={{GOODPUT}} read: a fitted model (simsched.agent.goodput_agent), or None.
    goodput = None
    # Whether `choose` may return something else than last time.
    stale = True

    def choose(self, site, epoch):
        # site: gpus, num_nodes, gpu_type. batch_for_target splits a total batch over GPUs and micro-batches.
        target = self.first * 2 ** min(epoch // self.every_epochs, 30)
        smallest = self.limits.min_local_bsz * site.gpus
        return batch_for_target(self.limits, min(max(target, smallest), self.limits.max_batch_size), site.gpus)

    def observe(self, measurement):
        """Record a measurement of the job: measurement.step (seconds), measurement.gradient (sqr, var)."""


@dataclass
class {kind}(AgentFactory):
    """Doubles every job's total batch every `every_epochs` epochs."""

    name: ClassVar[str] = "{name}"

    # Parameters of an experiment (`agent: {{name: ..., params: {{every_epochs: 5}}}}`): they have types and defaults.
    every_epochs: int = 20

    def agent(self, request, facts):
        if facts.limits is None:  # a job with only a duration, or with plans
            return fixed_agent(request, facts)
        first = request.batch_size or facts.limits.init_batch_size
        return OfJob(facts.limits, first, self.every_epochs)
'''

_PROCESS = '''"""{name}: what the process does, in one sentence."""


# Parameters of an experiment (`processes: [{{use: "{module}.py:{module}", params: {{nodes: 4}}}}]`) have defaults.
def {module}(site, nodes: int = 2, every_s: float = 14400, repair_s: float = 600):
    """Breaks some nodes every few hours, and submits a test once they are repaired; stops after three times."""
    for _ in range(3):
        # Wait for site.timeout(s), site.started(job), site.finished(job), site.any_of(events), site.all_of(events).
        yield site.timeout(every_s)
        # site.now_s: the time; site.nodes: those in use; site.rng: this process's own random stream.
        for node in site.rng.choice(site.nodes, min(nodes, len(site.nodes)), replace=False):
            site.fail(node, for_s=repair_s)  # also: site.drain(node), site.provision(n), site.cancel(job)
        yield site.timeout(repair_s)
        # Takes the fields of simsched.model.JobSpec. The value of the event is the job's row of the table of jobs.
        test = site.submit(num_gpus=4, duration_s=300)
        row = yield site.finished(test)
        if row.jct_s > every_s:
            break
'''

_EXPERIMENT = """\
# simsched run {name}.yaml
name: {name}
description: the purpose of the experiment

# 16 nodes of 4 GPUs. Several kinds of nodes: groups: [{{nodes: 4, gpus_per_node: 8, gpu_type: v100}}, ...]
cluster: {{nodes: 16, gpus_per_node: 4, gpu_type: t4}}

# 160 jobs drawn as in the Pollux paper from four generated, Philly-like weeks, different for each seed; `stratify`
# spreads long and short jobs evenly over the seeds. To replay your own trace:
# workload: {{path: my-trace.csv, recipe: replay}}
workload: {{source: philly-generated, days: 28, recipe: pollux, jobs: 160, stratify: true}}

engine: {{restart_delay_s: 30}}

# See `simsched list policies`; your own: {{name: "my_policy.py:MyPolicy"}}
policies:
  - {{name: tiresias}}
  - {{name: fifo}}

# Seeds 1 to 8. A seed varies the sampled jobs and all randomness in policies, agents and failures; all policies get the
# same jobs for a seed. With fewer seeds, the intervals are wider.
seeds: 8

# Every combination of these values is run, e.g. sweep: {{workload.load: [0.5, 1, 1.5]}}
sweep: {{}}
"""


@click.group()
def new() -> None:
    """Write a commented template of a policy, agent, process or experiment that runs unchanged, or a sample.

    Samples are a log, manifests, and measurements of an application.
    """


_NAME = arg()


def _add_plugin(noun: str, made: str, template: str, named: str) -> None:
    """Add the command that writes a template of a plugin; `named` is what its check calls it in the file."""

    def run(name: str = _NAME, *, force: bool = FORCE) -> None:
        module = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
        kind = class_name(module)
        if not kind.isidentifier() or iskeyword(module):
            raise input_error("NAME", f"'{name}' cannot name a class", f"begin with a letter, as in my-{noun}")
        path = Path(f"{module}.py")
        _write(path, template.format(name=module.replace("_", "-"), kind=kind, module=module), force)
        click.echo(f"{path}: try `simsched check {noun} {path}:{module if noun == 'process' else kind}`")

    about = f"Write NAME.py with {made}; edit it, then run `simsched check {noun} NAME.py:{named}`."
    command(new, noun, help=about)(run)


_add_plugin("policy", "a conforming policy", _POLICY, "Class")
_add_plugin("agent", "conforming agents", _AGENT, "Class")
_add_plugin("process", "a conforming process", _PROCESS, "NAME")


def class_name(module: str) -> str:
    """Return the name of the class in a module of a plugin: MyPolicy in my_policy."""
    return "".join(part.capitalize() for part in module.split("_"))


@command(new)
def external(
    name: str = _NAME, *, language: Literal["python", "go", "c"] = opt(default="python"), force: bool = FORCE
) -> None:
    """Write NAME.py, NAME.go or NAME.c with a whole scheduler for the policy `external` (docs/external.md)."""
    ending = {"python": ".py"}.get(language, f".{language}")
    path = Path(f"{name.removesuffix(ending)}{ending}")
    _write(path, files("simsched_policies.external").joinpath(f"client{ending}").read_text("utf-8"), force)
    how = f"command: [{'python3' if language == 'python' else './' + path.stem}]"
    how += f", program: {path}" if language == "python" else ""
    click.echo(f"{path}: try it with policies: [{{name: external, params: {{{how}}}}}, srtf]")


@command(new)
def experiment(name: str = _NAME, *, force: bool = FORCE) -> None:
    """Write NAME.yaml with a small experiment; edit it, then run `simsched run NAME.yaml`."""
    name = name.removesuffix(".yaml")
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise input_error("NAME", f"'{name}' cannot name an experiment", "use letters, digits and . _ -")
    path = Path(f"{name}.yaml")
    _write(path, _EXPERIMENT.format(name=name), force)
    click.echo(f"{path}: try `simsched run {path}`")


def _write_sample(name: str, folder: Path, *, force: bool) -> None:
    from simsched.paths import data_folder
    from simsched.reading import read_text

    shipped = data_folder("traces") / name
    for source in sorted(path for path in shipped.rglob("*") if path.is_file()):
        path = folder / source.relative_to(shipped).with_name(source.name.removesuffix(".gz"))
        _write(path, read_text(source), force)
        click.echo(f"{path}")


def _add_sample(noun: str, usual: str, about: str) -> None:
    """Add the command that writes a shipped sample into a folder."""

    def run(folder: Path = arg(default=Path(usual)), *, force: bool = FORCE) -> None:
        _write_sample(f"{noun}-sample", folder, force=force)

    command(new, noun, help=about)(run)


@command(new)
def log(
    folder: Path = arg(default=Path()),
    *,
    rules: Literal["as-configured", "small-first", "fair-share"] = opt(
        "What the cluster did; no file says so.", default="as-configured"
    ),
    force: bool = FORCE,
) -> None:
    """Write a sample log of a small Slurm cluster, its configuration and its queue into FOLDER."""
    _write_sample("slurm-sample", folder, force=force)
    if rules != "as-configured":
        from simsched.cli.operator_options import LogOptions, make_plan
        from simsched.operators.sample import run_again

        conf = tuple(folder / name for name in ("slurm.conf", "partitions.txt", "qos.txt", "assoc.txt"))
        path = folder / "log.txt"
        with TemporaryDirectory() as out:
            plan = make_plan(path, LogOptions(cluster=folder / "cluster.txt", conf=conf, out=Path(out)))
            write_text(path, run_again(plan, rules, path))


_add_sample(
    "kubernetes", ".", "Write sample manifests into FOLDER: nodes in racks, queues of Kueue and thirty workloads."
)
_add_sample(
    "measurements",
    "measured",
    "Write sample measurements of an application into FOLDER/mynet, for `simsched application fit FOLDER`.",
)


def refuse_to_overwrite(
    path: Path, force: bool, remedy: str = "name another file, or overwrite it with --force"
) -> None:
    """Raise `InputError` if a file exists, unless forced."""
    if path.exists() and not force:
        raise input_error(path, "already exists", remedy)


def _write(path: Path, text: str, force: bool) -> None:
    refuse_to_overwrite(path, force)
    write_text(path, text)
