"""Measured plans: rows as they are, between rows, scaled by a model, and the files they are read from."""

import csv

import pytest

from simsched.applications import ApplicationCatalogue
from simsched.applications.plans import hardware_text, read_plan_table, shipped_hardware
from simsched.engine import EngineOptions
from simsched.errors import InputError, InputWarning
from simsched.model import Cluster, JobRequest, JobSpec, NodeShape, Site
from simsched.model.application import NO_BATCH
from simsched.model.job import JobTruth
from simsched.model.placement import Amount, Tier
from simsched.model.plans import Hardware, ModelShape, Plan, PlannedModel, TabledModel, morphling_plan
from simsched.policy import registry
from simsched.testing.builders import run

OPTIONS = EngineOptions(restart_delay_s=0)
TABLE = "exec_plan,placement,iter_time\nga,2,4\nga,4,1\nga,22,2\n212,4,0.5\n"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "placements_net.csv").write_text(TABLE)
    return tmp_path


@pytest.fixture
def net(folder):
    return read_plan_table(folder / "placements_net.csv", "net", "a800")


def test_a_row_counts_as_it_is_whatever_the_order_of_the_nodes(net):
    assert net.parts(Plan(data=4), Site((2, 2), "a800")).total == 2
    assert net.parts(Plan(data=4), Site((4,), "a800")).total == 1
    best = net.best(Site((4,), "a800"))
    assert (best.plan, best.parts.total) == (Plan(tensor=1, pipeline=2, data=2), 0.5)


def test_between_rows_seconds_follow_a_line_over_gpus(net):
    # 4 s on two GPUs, on four the mean of 1 and 2 s: on three 2.75 s.
    assert net.parts(Plan(data=3), Site((3,), "a800")).total == 2.75
    assert net.best(Site((2, 1), "a800")).plan == Plan(data=3)


def test_what_no_row_reaches_is_refused(net):
    for plan, gpus, reason in ((Plan(data=8), 8, "neither"), (Plan(data=2), 4, "takes 2 GPUs, not 4")):
        with pytest.raises(ValueError, match=reason):
            net.parts(plan, Site((gpus,), "a800"))
    with pytest.raises(ValueError, match="measured on a800, not t4"):
        net.parts(Plan(data=4), Site((4,), "t4"))
    with pytest.raises(ValueError, match="no plan of net is known"):
        net.best(Site((8,), "a800"))


def test_with_a_model_the_nearest_row_is_scaled_by_the_ratio_of_its_times():
    hardware = Hardware("a800", 1e15, 1e12, 1e12, 1.0, 0.0, 0.0, 1e9, 0.0, 4, 1e9)
    model = PlannedModel("net", ModelShape(4, 64, 256, 4, 4, 100, 32), {"a800": hardware}, 16, 1e9)
    measured = Plan(tensor=2, data=2)
    site, far = Site((4,), "a800"), Site((4, 4), "a800")
    net = TabledModel("net", "a800", {(measured, (4,)): 3 * model.parts(measured, site).total}, model)
    assert net.parts(measured, site).total == pytest.approx(3 * model.parts(measured, site).total)
    assert net.parts(measured, site).tensor == pytest.approx(3 * model.parts(measured, site).tensor)
    asked = Plan(tensor=2, data=4)
    assert net.parts(asked, far).total == pytest.approx(3 * model.parts(asked, far).total)
    assert net.best(far).plan == model.best(far).plan


def test_rows_count_at_their_own_number_of_gpus_wherever_these_lie(net):
    assert (net.node_gpus("a800"), net.global_batch, net.gpu_types) == (4, 0, ("a800",))
    assert net.parts(Plan(data=2), Site((1, 1), "a800")).total == 4
    assert net.parts(Plan(data=4), Site((3, 1), "a800", tiers=(Tier(1, 3, 1e9),)))[5:] == (0.0, [0.0])
    with pytest.raises(ValueError, match="no plan of net is known on"):
        net.best(Site((4,), "t4"))
    assert net.refusal(Plan(data=4), "a800", 4) is None


#: A model whose plans were measured on four rows, each so many times as long as modelled.
MEASURED = {
    (Plan(data=4, recomputation="full"), (4,)): 2, (Plan(data=2), (2,)): 3, (Plan(tensor=2, data=2), (4,)): 5,
    (Plan(data=4), (1, 1, 1, 1)): 7,
}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "shape", "factor"),
    [
        (Plan(data=4), (4,), 3),  # one factor of two in the ranks, against four nodes for one
        (Plan(data=4), (2, 2), 7),  # two nodes for four, against ranks and nodes
        (Plan(data=8), (4, 4), 7),
        (Plan(tensor=2, data=4), (8,), 5),
        (
            Plan(tensor=2, data=4),
            (2, 2, 2, 2),
            7,
        ),  # half the tensor ranks, against half the data ranks on a quarter of the nodes
        (Plan(data=2, recomputation="full"), (2,), 2),
        (Plan(data=4, recomputation="full", zero=1), (4,), 2),
    ],
)
def test_the_nearest_row_is_of_the_same_kind_then_of_like_ranks_and_nodes(asked, shape, factor):
    hardware = Hardware("a800", 1e15, 1e12, 1e12, 1.0, 0.0, 0.0, 1e9, 0.0, 4, 1e9)
    model = PlannedModel("net", ModelShape(4, 64, 256, 4, 4, 100, 32), {"a800": hardware}, 16, 1e9)
    rows = {(plan, at): n * model.parts(plan, Site(at, "a800")).total for (plan, at), n in MEASURED.items()}
    net, site = TabledModel("net", "a800", rows, model), Site(shape, "a800")
    assert net.parts(asked, site).total == pytest.approx(factor * model.parts(asked, site).total)
    assert (net.global_batch, net.refusal(asked, "a800", asked.gpus)) == (16, None)
    assert "global batch of 7" in net.refusal(asked, "a800", asked.gpus, 7)


def test_a_folder_of_tables_is_a_catalogue_of_applications(folder):
    found = ApplicationCatalogue.load(folder, gpu_type="a800")
    job = found.for_job(JobRequest("a", 0, 4, "net"), JobTruth(total_steps=10))
    assert (job.gpu_types, job.epoch_end(0)) == (("a800",), 10)
    assert job.run(Site((4,), "a800"), NO_BATCH, 0).rate == 2


@pytest.mark.parametrize(
    ("row", "reason"),
    [("ga,0,1", "placement"), ("ga,2,x", "iter_time"), ("331,4,1", "takes 9"), ("t2 d4,4,1", "takes 8"),
     ("q,1,1", "'q'")],
)  # fmt: skip
def test_a_wrong_row_is_named_by_its_line(tmp_path, row, reason):
    path = tmp_path / "placements_x.csv"
    path.write_text(f"exec_plan,placement,iter_time\n{row}\n")
    with pytest.raises(InputError, match=reason) as caught:
        read_plan_table(path, "x", "a800")
    assert caught.value.problems[0].line == 2


def test_plans_that_could_not_run_are_left_out_and_told(tmp_path):
    path = tmp_path / "placements_x.csv"
    path.write_text("exec_plan,placement,iter_time\nga,1,4\ngc,1,0\n")
    with pytest.warns(InputWarning, match="1 row of 0 seconds left out"):
        assert len(read_plan_table(path, "x", "a800").rows) == 1


@pytest.mark.filterwarnings("ignore::simsched.errors.InputWarning")
def test_every_row_of_the_published_tables_comes_out(shared):
    tables = ApplicationCatalogue.load(shared / "llm" / "morphling", gpu_type="a800").planned
    seen = 0
    for name, table in tables.items():
        lines = (shared / "llm" / "morphling" / f"placements_{name}.csv").read_text().splitlines()
        for row in csv.DictReader(lines):
            site = Site(tuple(map(int, row["placement"])), "a800")
            if "cpu_threads" not in row:  # where these differ, rows do for equal plans
                plan = morphling_plan(row["exec_plan"], site.gpus)
                assert table.parts(plan, site).total == float(row["iter_time"])
                seen += 1
    assert seen == 518
    llama = tables["llama7"]
    for text, whole, halves in (("244", 0.943, 1.203), ("148", 0.973, 1.587)):
        plan = morphling_plan(text, 32)
        assert round(llama.parts(plan, Site((8,) * 4, "a800")).total, 3) == whole
        assert round(llama.parts(plan, Site((4,) * 8, "a800")).total, 3) == halves


def test_jobs_of_shipped_models_and_of_tables_run_for_their_steps(folder):
    """A duration on the GPUs asked for tells the whole steps, each as long as the best plan's; a table's are given."""
    shape = NodeShape(0, Amount(64), ("h100",))
    found = ApplicationCatalogue.load()
    cluster = Cluster.uniform(8, 8, "h100")
    job = JobSpec("a", 0, 64, "llama2-7b", duration_s=3600, shape=shape)
    recorder = run(registry.load("fifo")(), [job], cluster=cluster, applications=found, options=OPTIONS)
    step_s = found.for_job(job.request, job.truth).plans.best(Site((8,) * 8, "h100")).parts.total
    assert recorder.jobs[0].end_time_s == pytest.approx(3600 // step_s * step_s, abs=1)
    tables = ApplicationCatalogue.load(folder, gpu_type="a800")
    job = JobSpec("b", 0, 4, "net", total_steps=100)
    cluster = Cluster.uniform(2, 4, "a800")
    recorder = run(registry.load("fifo")(), [job], cluster=cluster, applications=tables, options=OPTIONS)
    assert recorder.jobs[0].end_time_s == 50  # half a second a step by its fastest plan


def test_a_duration_on_gpus_of_no_certain_type_is_refused():
    job = JobSpec("a", 0, 64, "llama2-7b", duration_s=3600)
    with pytest.raises(InputError, match="must name the GPU type: a100, h100"):
        ApplicationCatalogue.load().for_job(job.request, job.truth)


def test_a_models_file_names_its_profile_and_its_measured_plans_beside_it(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "format: simsched-model/1\nname: mine\n"
        "shape: {layers: 8, hidden: 1024, mlp: 4096, heads: 16, kv_heads: 16, vocabulary: 1000, sequence: 1024}\n"
        "global_batch: 64\nhardware: {h100: own.yaml}\nmeasured: {h100: placements_mine.csv}\n"
    )
    (tmp_path / "own.yaml").write_text(hardware_text(shipped_hardware()["h100"]))
    (tmp_path / "placements_mine.csv").write_text("exec_plan,placement,iter_time\nt2 p1 d4 b2,8,7.5\n")
    found = ApplicationCatalogue.load(tmp_path)
    assert found.names() == ("mine",)
    mine, site = found.planned["mine"], Site((8,), "h100")
    assert mine.best(site).parts.total == pytest.approx(7.5)
    plan = Plan(tensor=2, data=4, micro_batch=1)
    ratio = mine.model.parts(plan, site).total / mine.model.parts(Plan(2, 1, 4, 1, 2), site).total
    assert mine.parts(plan, site).total == pytest.approx(7.5 * ratio)
