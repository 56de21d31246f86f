"""The kit notices processes that do not conform, and the template of `simsched new process` does."""

from __future__ import annotations

import random
from typing import ClassVar

import pytest
from click.testing import CliRunner

from simsched.cli.main import cli
from simsched.engine import PROCESSES, EngineOptions, Simulation
from simsched.model import Cluster
from simsched.paths import data_folder
from simsched.policy import registry
from simsched.testing import check_process
from simsched.testing.check_policy import _workload as workload_for
from tests.engine.test_processes import Storm

ENDS, SAME, FORKS = "every run ends", "same seed, same run", "a fork goes on alike"


def undeclared(site, must):
    yield site.timeout(1)


def failing(site):
    """Fails."""
    yield site.timeout(3600)
    site.drain(99)


def from_a_global_generator(site):
    """Draws."""
    yield site.timeout(3600 * random.random())


def remembers(site, seen=[]):  # noqa: B006
    """Draws."""
    yield site.timeout(3600)
    seen.append(1)
    site.fail(len(seen) % 16, for_s=600)


def endless(site):
    """Submits."""
    while True:
        yield site.timeout(30)
        site.submit(num_gpus=1, duration_s=60)


class Shared(Storm):
    """Shares a list with its copies."""

    nodes: ClassVar = []

    def __init__(self, site):
        super().__init__(site, every_s=7200)
        self.nodes[:] = range(9)
        self.left = 9

    def send(self, value):
        if self.nodes:
            self.site.fail(self.nodes.pop(), for_s=600)
        return self.site.timeout(7200)


class Generates(Storm):
    """Holds what cannot be copied."""

    def __init__(self, site):
        super().__init__(site)
        self.inner = failing(site)


@pytest.mark.parametrize(
    ("process", "fails", "said"),
    [
        (Storm, set(), ""),
        (undeclared, {"declaration", ENDS, SAME}, "TypeError: undeclared() missing 1 required positional argument"),
        (failing, {ENDS, SAME}, "there is no node 99"),
        (from_a_global_generator, {SAME}, "it draws from a global random generator instead of site.rng"),
        (remembers, {SAME}, "the same seed gives another run"),
        (endless, {ENDS, SAME}, "new ones come without end"),
        (Shared, {FORKS}, "goes on in another way"),
        (Generates, {FORKS}, "cannot be forked: process 'failing' is a generator"),
    ],
)
def test_each_fault_fails_the_check_that_is_for_it(process, fails, said):
    found = check_process(process, seeds=1)
    assert {failure.check for failure in found} == fails
    assert said in "".join(failure.reason for failure in found)


def test_a_failure_names_the_line_of_the_process():
    (first, *_) = check_process(failing, seeds=1)
    line = failing.__code__.co_firstlineno + 3
    assert str(first).startswith(f"{__file__}:{line}: {ENDS}: process 'failing' at t=3600 s (")


@pytest.mark.parametrize("name", ["storm.py:storm", "resubmit.py:user", "autoscale.py:autoscale"])
def test_shipped_processes_conform(name):
    assert check_process(PROCESSES.load(name, folder=data_folder("experiments") / "processes"), seeds=2) == []


@pytest.mark.parametrize("name", registry.names())
def test_every_policy_forgets_a_job_that_its_user_withdraws(name):
    """Every third job is withdrawn 0 or 45 s after its submission if it has not begun by then."""
    policy, cluster = registry.load(name)(), Cluster.uniform(3, 2)
    applications, jobs = workload_for(policy, cluster, 0)

    def withdraw(site):
        for number, job in enumerate(jobs[::3]):
            yield site.timeout(max(job.submit_time_s + 45 * (number % 2) - site.now_s, 0))
            if not site.started(job.id).triggered:
                site.cancel(job.id)

    simulation = Simulation(
        cluster, jobs, applications, EngineOptions(), 0, policy, processes=[withdraw], check_invariants=True
    )
    simulation.run(policy)
    assert sorted(job.job_id for job in simulation.recorder.jobs) == sorted(job.id for job in jobs)


def test_the_template_conforms_and_bad_names_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["new", "process", "my-storm"])
    assert done.output == "my_storm.py: try `simsched check process my_storm.py:my_storm`\n"
    done = CliRunner().invoke(cli, ["check", "process", "my_storm.py:my_storm"])
    assert (done.exit_code, done.output) == (0, "my_storm: conforms\n")
    for name in ("class", "7", "-"):
        done = CliRunner().invoke(cli, ["new", "process", "--", name])
        assert done.exit_code == 2
        assert f"'{name}' cannot name a class" in done.output
