"""Users' SimPy processes beside the cluster, on timelines worked by hand."""

from __future__ import annotations

import linecache
import re
from pathlib import Path

import pytest
from simsched_policies.queues.by_key import Fifo
from simsched_policies.queues.tiresias import Tiresias

import simsched as sim
from simsched.engine import EngineError, EngineOptions, Simulation
from simsched.model import Cluster, JobSpec
from simsched.policy import registry
from simsched.testing.builders import Applications


def run(*processes, jobs=(), nodes=1, gpus=4, **options):
    specs = list(jobs) or [JobSpec("a", 0, 4, duration_s=100)]
    policy = Fifo()
    simulation = Simulation(
        Cluster.uniform(nodes, gpus), specs, Applications(), EngineOptions(restart_delay_s=0, **options), 1, policy,
        processes=processes,
    )  # fmt: skip
    simulation.run(policy)
    return simulation.recorder


def ends(records):
    return {job.job_id: job.end_time_s for job in records.jobs}


def test_a_node_that_a_process_fails_sets_its_job_back_and_names_the_process():
    def storm(site):
        yield site.timeout(30)
        site.fail(0, for_s=50)

    records = run(storm)
    assert ends(records) == {"a": 180}  # 30 s lost, 50 s down, then 100 s
    assert [(o.node, o.start_s, o.end_s, o.kind) for o in records.outages] == [(0, 30, 80, "storm")]


def test_a_drained_node_keeps_progress_and_comes_back_when_provisioned():
    def operator(site):
        yield site.timeout(30)
        site.drain(0)
        assert site.nodes == ()
        yield site.timeout(20)
        site.provision(1)

    records = run(operator)
    assert ends(records) == {"a": 120}
    assert [(o.start_s, o.end_s, o.kind) for o in records.outages] == [(30, 50, "operator")]


def test_a_process_submits_when_a_job_has_started_and_when_it_has_finished():
    seen = []

    def user(site):
        row = yield site.started("a")
        seen.append((site.now_s, row.start_time_s))
        row = yield site.finished("a")
        seen.append((site.now_s, row.jct_s))
        second = site.submit(num_gpus=2, duration_s=10)
        yield site.finished(second)
        site.submit(id="last", num_gpus=1, duration_s=5, user="me")

    records = run(user)
    assert seen == [(0, 0), (100, 100)]
    assert ends(records) == {"a": 100, "user-1": 110, "last": 115}
    assert [job.user for job in records.jobs] == ["", "user", "me"]


def test_a_user_who_has_waited_too_long_cancels_and_resubmits():
    def user(site):
        yield site.timeout(10)
        waiting = site.submit(num_gpus=4, duration_s=10)
        event = site.started(waiting)
        happened = yield site.any_of([event, site.timeout(20)])
        assert event not in happened
        site.cancel(waiting)

    records = run(user)
    assert [(job.job_id, job.status, job.end_time_s) for job in records.jobs] == [
        ("user-1", "Cancelled", 30),
        ("a", "", 100),
    ]


def test_a_job_that_is_cancelled_before_the_policy_sees_it_is_not_shown():
    shown = []

    class Watching(Fifo):
        """Keeps what it is shown."""

        def decide(self, view, rng):
            shown.append(([job.id for job in view.arrived], list(view.finished), [job.id for job in view.lost]))
            return super().decide(view, rng)

    def user(site):
        yield site.timeout(10)
        site.fail(0, for_s=5)
        site.cancel("a")
        new = site.submit(num_gpus=1, duration_s=5)
        yield site.timeout(0)
        site.cancel(new)
        site.submit(id="b", num_gpus=1, duration_s=5)

    policy = Watching()
    simulation = Simulation(
        Cluster.uniform(1, 4), [JobSpec("a", 0, 4, duration_s=100)], Applications(), EngineOptions(), 1, policy,
        processes=[user],
    )  # fmt: skip
    simulation.run(policy)
    assert shown[:2] == [(["a"], [], []), (["b"], ["a"], [])]


@pytest.mark.parametrize("interval", [None, 60])
def test_a_cluster_may_rest_while_a_process_keeps_it_down_but_not_without_end(interval):
    class Policy(Tiresias if interval else Fifo):
        """Decides every minute, or at events."""

    def operator(site, days=3):
        site.drain(0)
        yield site.timeout(days * 86_400)
        site.provision(1)

    def never(site):
        site.drain(0)
        while True:
            yield site.timeout(86_400)

    def ran(process):
        policy = Policy()
        jobs = [JobSpec("a", 100, 4, duration_s=100)]
        simulation = Simulation(
            Cluster.uniform(1, 4), jobs, Applications(), EngineOptions(restart_delay_s=0), 1, policy,
            processes=[process],
        )  # fmt: skip
        simulation.run(policy)
        return ends(simulation.recorder)

    assert ran(operator) == {"a": 3 * 86_400 + 100}
    with pytest.raises(EngineError, match=r"no job has run since t=100 s, but 1 wait|nothing runs and nothing is due"):
        ran(never)


def test_processes_start_in_their_order_with_streams_of_their_own():
    drawn = {}

    def one(site):
        drawn[site.name] = site.rng.random()
        yield site.timeout(0)

    run(one, one)
    first = dict(drawn)
    drawn.clear()
    run(one, one)
    assert list(drawn) == ["one", "one-2"]
    assert drawn == first
    assert len(set(drawn.values())) == 2


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda site: site.fail(7, 10), "there is no node 7; nodes are 0 to 0"),
        (lambda site: site.fail(0, -1), "more than 0 seconds, not -1"),
        (lambda site: site.timeout(-1), "0 seconds or more, not -1"),
        (lambda site: site.provision(3), "the cluster has 1 nodes"),
        (lambda site: site.started("b"), "there is no job 'b'"),
        (lambda site: site.cancel("b"), "there is no job 'b'"),
        (lambda site: site.submit(gpus=2), "a job has no field 'gpus'; did you mean 'num_gpus'"),
        (lambda site: site.submit(num_gpus=9, duration_s=1), "it asks for 9 GPUs and can never fit"),
        (lambda site: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_what_cannot_be_done_raises_in_the_process_and_names_its_line(act, says):
    def wrong(site):
        yield site.timeout(5)
        act(site)

    with pytest.raises(EngineError) as raised:
        run(wrong)
    message = str(raised.value)
    assert says in message
    assert message.startswith("process 'wrong' at t=5 s (")
    assert "test_processes.py:" in message


def test_an_error_in_a_constructor_names_its_line():
    class Wrong:
        def __init__(self, site):
            site.drain(7)

    with pytest.raises(
        EngineError, match=r"^process 'Wrong' at t=0 s \(.*test_processes\.py:\d+\): there is no node 7"
    ):
        run(Wrong)


def test_lines_of_processes_below_the_data_of_simsched_count_and_those_of_libraries_do_not():
    place = str(Path(sim.__file__).parent / "data" / "experiments" / "mine.py")
    text = "def wrong(site):\n    yield site.timeout(5)\n    site.rng.choice([], 2)\n"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)
    made = {}
    exec(compile(text, place, "exec"), made)
    with pytest.raises(EngineError, match=rf"^process 'wrong' at t=5 s \({re.escape(place)}:3\): ValueError: "):
        run(made["wrong"])
    del linecache.cache[place]


def test_a_process_may_go_on_after_a_refusal():
    def careful(site):
        yield site.timeout(5)
        with pytest.raises(EngineError, match="there is no node"):
            site.drain(5)
        yield site.timeout(1)

    assert ends(run(careful)) == {"a": 100}


def test_what_is_no_process_is_refused():
    with pytest.raises(
        EngineError, match="process 'plain' is 3, which SimPy cannot run; write a function with `yield`"
    ):
        run(plain)


def plain(site):
    return 3


class Storm:
    """A process that a fork can copy: fails the node at each of two times."""

    def __init__(self, site, every_s=30):
        self.site, self.every_s, self.left = site, every_s, 2

    def send(self, value):
        if self.left < 2:
            self.site.fail(0, for_s=5)
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.site.timeout(self.every_s)

    def throw(self, error):
        raise error


def simulation_of(process):
    policy = Fifo()
    jobs = [JobSpec("a", 0, 4, duration_s=100), JobSpec("b", 40, 4, duration_s=10)]
    return policy, Simulation(
        Cluster.uniform(1, 4), jobs, Applications(), EngineOptions(restart_delay_s=0), 1, policy,
        processes=[(process, {"every_s": 35})],
    )  # fmt: skip


def test_a_fork_copies_a_process_that_is_an_object_and_both_go_on_alike():
    policy, simulation = simulation_of(Storm)
    simulation.act(policy.decide(simulation.advance(), simulation.rng))
    twin = simulation.fork()
    twin.run(twin.agents)
    assert simulation.recorder.jobs == []
    simulation.run(policy)
    assert twin.recorder.jobs == simulation.recorder.jobs
    assert [job.failures for job in twin.recorder.jobs] == [2, 0]


def test_a_fork_refuses_a_generator_by_name():
    def storm(site, every_s):
        yield site.timeout(every_s)

    _, simulation = simulation_of(storm)
    simulation.advance()
    with pytest.raises(
        EngineError, match="process 'storm' is a generator; write it as a class with `send` and `throw`"
    ):
        simulation.fork()


def test_the_first_process_comes_before_the_first_event():
    policy = Fifo()
    simulation = Simulation(
        Cluster.uniform(1, 4), [JobSpec("a", 0, 4, duration_s=1)], Applications(), EngineOptions(), 1, policy
    )
    simulation.advance()
    with pytest.raises(EngineError, match="before advance"):
        simulation.process(plain)


def test_simulate_takes_processes_and_its_tables_tell_what_they_did():
    def storm(site, for_s):
        yield site.timeout(30)
        site.fail(0, for_s=for_s)
        site.submit(num_gpus=4, duration_s=10)

    jobs = [{"id": "a", "num_gpus": 4, "duration_s": 100}]
    done = sim.simulate(
        jobs=jobs, policy="fifo", cluster=(1, 4), restart_delay_s=0, processes=[(storm, {"for_s": 50})]
    )  # fmt: skip
    assert done.jobs[["job_id", "user", "end_time_s", "failures"]].values.tolist() == [
        ["a", "", 180.0, 1],
        ["storm-1", "storm", 190.0, 0],
    ]
    assert done.outages[["node", "start_s", "end_s", "kind"]].values.tolist() == [[0, 30, 80, "storm"]]


@pytest.mark.parametrize("policy", ["fifo", "las", "srtf"])
def test_a_waiting_job_that_is_cancelled_is_not_started(policy):
    def impatient(site):
        yield site.timeout(10)
        site.cancel("b")

    jobs = [JobSpec(name, submit, 4, duration_s=100) for submit, name in enumerate("abc")]
    chosen = registry.load(policy)()
    options = EngineOptions(restart_delay_s=0)
    simulation = Simulation(Cluster.uniform(1, 4), jobs, Applications(), options, 1, chosen, processes=[impatient])
    simulation.run(chosen)
    assert {job.job_id: job.status for job in simulation.recorder.jobs} == {"a": "", "b": "Cancelled", "c": ""}
