"""The runs published with Pollux (OSDI'21), replayed: every completion time is the same second.

Their measurements and job lists are not part of the project; without them these tests are skipped.
"""

import json

import pytest
from click.testing import CliRunner
from simsched_policies.adaptive.optimus import Optimus
from simsched_policies.queues.tiresias import Tiresias

from simsched.applications.catalogue import ApplicationCatalogue
from simsched.applications.tuned_requests import initial_batch_sizes, tuned_configurations
from simsched.cli.main import cli
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster
from simsched.workload.readers import read_trace
from simsched.workload.recipes.pollux import PolluxRecipe, draw_workload

pytestmark = pytest.mark.usefixtures("in_this_process")

POLICIES = {"tiresias": Tiresias, "optimus": Optimus}


def simsched(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="simsched")


@pytest.fixture(scope="module")
def results(shared, tmp_path_factory):
    data, out = shared / "pollux-osdi21", tmp_path_factory.mktemp("results")
    paths = ["-o", f"applications.path={data / 'traces'}", "-o", f"workload.path={data / 'workloads'}"]
    labels = [part for label in POLICIES for part in ("--policy", label)]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SIMSCHED_CHECK_INVARIANTS", raising=False)  # those are checked on smaller runs
        done = simsched("run", "validation/pollux-osdi21", *paths, *labels, "--out", out, "--no-plots", "--workers", 1)
    assert done.exit_code == 0, done.output
    return out / "pollux-osdi21"


@pytest.mark.parametrize("policy", POLICIES)
def test_all_640_jobs_of_workloads_1_to_4_take_the_published_seconds(shared, results, policy):
    expected = shared / "pollux-osdi21" / "published" / f"{policy}.csv"
    done = simsched("compare", results, "--expected", expected, "--policy", policy, "--json")
    found = json.loads(done.stdout)
    assert [(one["workload"], one["equal"], one["largest_difference_s"]) for one in found] == [
        (f"workload-{number}", 160, 0) for number in (1, 2, 3, 4)
    ]
    assert done.exit_code == 0


@pytest.fixture(scope="module")
def applications(shared):
    return ApplicationCatalogue.load(shared / "pollux-osdi21" / "traces", bounds="pollux-osdi21")


@pytest.fixture(scope="module")
def philly(shared):
    return read_trace(shared / "philly" / "philly.csv")


# Workload 6 was published as means: seconds per job and makespan of the tuned one at load 1 (mean to the fraction, for
# the sum over 160 jobs is a whole number), and hours, rounded, of the realistic one.
@pytest.mark.parametrize(
    ("policy", "configs", "mean_s", "makespan_s"),
    [
        ("tiresias", "tuned", 3469.69375, 78609),
        ("optimus", "tuned", 5301.875, 66299),
        ("tiresias", "realistic", pytest.approx(2.148 * 3600, abs=1.8), pytest.approx(28.36 * 3600, abs=18)),
        ("optimus", "realistic", pytest.approx(1.857 * 3600, abs=1.8), pytest.approx(20.08 * 3600, abs=18)),
    ],
)
def test_workload_6_drawn_anew_gives_the_published_means(
    applications, philly, policy, configs, mean_s, makespan_s, monkeypatch
):
    monkeypatch.delenv("SIMSCHED_CHECK_INVARIANTS", raising=False)  # those are checked on smaller runs
    known = applications.applications
    recipe = PolluxRecipe(configs=configs)
    jobs = draw_workload(philly, recipe, 6, tuned_configurations(known), initial_batch_sizes(known))
    recorder = MemoryRecorder()
    simulate(Cluster.uniform(), jobs, applications, POLICIES[policy](), EngineOptions(), 1, recorder)
    assert sum(job.jct_s for job in recorder.jobs) / len(recorder.jobs) == mean_s
    assert max(job.submit_time_s + job.jct_s for job in recorder.jobs) == makespan_s
