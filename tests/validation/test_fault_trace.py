"""The trace of faults published with InfiniteHBD (SIGCOMM'25), replayed as it is.

The trace is not part of the project; without it these tests are skipped.
"""

import itertools

import pytest
from click.testing import CliRunner

from simsched.cli.main import cli
from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.policy import registry
from simsched.testing.builders import Applications
from simsched.workload.outages import merged, read_outages

SERVERS = 400
DAY_S = 86_400


def test_faults_and_node_time_lost_are_exact(shared):
    outages = read_outages(shared / "faults" / "fault_trace.json", SERVERS)
    assert len(outages) == 584
    span_s = max(outage.up_s for outage in outages)
    recorder = MemoryRecorder()
    simulate(
        Cluster.uniform(SERVERS, 1), [JobSpec("one", 0, 1, duration_s=span_s)], Applications(),
        registry.load("fifo")(), EngineOptions(restart_delay_s=0, tick_s=0), 1, recorder,
        failures=FailureOptions(outages=outages, checkpoint_interval_s=3600), check_invariants=False,
    )  # fmt: skip
    seen = [one for one in recorder.decisions if one.time_s <= span_s]
    assert seen[-1].node_failures == 584
    assert 1000 * seen[-1].node_failures / (SERVERS * span_s / DAY_S) == pytest.approx(4.23, abs=0.005)
    lost = sum((SERVERS - one.available_gpus) * (two.time_s - one.time_s) for one, two in itertools.pairwise(seen))
    assert lost == pytest.approx(sum(one.up_s - one.down_s for one in merged(outages)), rel=1e-12)
    assert 100 * lost / (SERVERS * span_s) == pytest.approx(2.34, abs=0.005)
    assert max(one.failed_nodes for one in seen) == SERVERS - min(one.available_gpus for one in seen)


def test_the_trace_becomes_a_list_of_outages(shared, tmp_path):
    trace, target = shared / "faults" / "fault_trace.json", tmp_path / "outages.csv"
    done = CliRunner().invoke(cli, ["trace", "outages", str(trace), str(target)])
    assert done.exit_code == 0, done.output
    assert "582 outages of 231 nodes" in done.output
    listed = read_outages(target, SERVERS)
    assert sum(one.up_s - one.down_s for one in listed) == pytest.approx(
        sum(one.up_s - one.down_s for one in merged(read_outages(trace))), rel=1e-8
    )
