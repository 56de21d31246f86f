"""Energy by hand: several GPU types, nodes that sleep, shared GPUs, and what an experiment may say of power."""

import pandas as pd
import pytest

from simsched.applications.gpu_types import gpu_types, read_gpu_types
from simsched.errors import InputError
from simsched.experiment.grid import make_grid
from simsched.experiment.running.runner import run_grid
from simsched.experiment.validation import read_experiment
from simsched.results.metric import NodeMake, Power, Tables
from simsched.results.metrics import summarise
from simsched.results.reader import read_run

pytestmark = pytest.mark.usefixtures("in_this_process")

TWO_TYPES = Power(
    (NodeMake(1, 2, "fast"), NodeMake(1, 4, "slow")),
    {"fast": 10.0, "slow": 1.0},
    {"fast": 100.0, "slow": 20.0},
    node_w=7.0,
    asleep_w=2.0,
)
JOBS = pd.DataFrame({"end_time_s": [100]})


def figures(allocations, rounds, power):
    columns = ("jct_s", "held_s", "queueing_s", "restart_s", "attained_gpu_s", "restarts", "tenant", "application")
    jobs = JOBS.assign(**dict.fromkeys(columns, 0))
    held = pd.DataFrame(allocations).assign(restarting=False, efficiency=1.0)
    return summarise(Tables(jobs, held, pd.DataFrame(rounds).assign(available_gpus=6), 6, power=power))


def test_types_draw_their_own_power_and_a_node_that_is_down_draws_what_sleep_takes():
    allocations = {"start_s": [0, 50], "end_s": [100, 100], "gpus": [1, 3], "placement": ["0:1", "0:1 1:2"]}
    on, off = {"fast": 2.0, "slow": 4.0}, {"fast": 2.0, "slow": 0.0}
    rounds = {"time_s": [10, 40, 40, 60], "provisioned_nodes": [2, 2, 1, 2], "provisioned_gpus": [on, on, off, on]}
    found = figures(allocations, rounds, TWO_TYPES)
    # The slow node is down from 40 to 60. Fast: 100 + 50 of 200 GPU s held; slow: 100 of 4 * 80.
    unused_ws = 50 * 10 + 220 * 1 + (200 - 20) * 7 + 20 * 2
    assert found["unused_energy_kwh"] == pytest.approx(unused_ws / 3.6e6, rel=1e-12)
    assert found["energy_kwh"] == pytest.approx((150 * 100 + 100 * 20 + unused_ws) / 3.6e6, rel=1e-12)


def test_without_the_gpus_by_type_there_is_no_energy_of_several_makes():
    allocations = {"start_s": [0], "end_s": [100], "gpus": [1], "placement": ["0:1"]}
    found = figures(allocations, {"time_s": [0], "provisioned_nodes": [2]}, TWO_TYPES)
    assert "energy_kwh" not in found
    assert "energy_kwh" not in figures(allocations, {"time_s": [0], "provisioned_nodes": [2]}, None)
    rounds = {"time_s": [0], "provisioned_nodes": [2], "provisioned_gpus": [{"fast": 2.0, "slow": 4.0}]}
    assert "energy_kwh" not in figures({"start_s": [0], "end_s": [100], "gpus": [1]}, rounds, TWO_TYPES)


def test_the_power_of_a_cell_is_that_of_its_manifest():
    cluster = [
        {"nodes": 1, "gpus_per_node": 2, "gpu_type": "fast"},
        {"nodes": 3, "gpus_per_node": 4, "gpu_type": "slow"},
    ]
    gpus = {"fast": {"idle_w": 10, "busy_w": 100}, "slow": {"idle_w": 1, "busy_w": 20}}
    power = Power.of(cluster, {"gpus": gpus, "node_w": 7, "asleep_w": 2})
    makes = NodeMake(1, 2, "fast"), NodeMake(3, 4, "slow")
    assert power == Power(makes, {"fast": 10, "slow": 1}, {"fast": 100, "slow": 20}, 7, 2)
    assert (power.nodes, power.types) == (4, ["fast", "slow"])


def test_a_shared_gpu_draws_once():
    power = Power((NodeMake(1, 1, "t4"),), {"t4": 0.0}, {"t4": 36.0})
    allocations = {"start_s": [0, 0], "end_s": [100, 100], "gpus": [1, 1], "gpu_share": [0.5, 0.5]}
    found = figures(allocations, {"time_s": [0], "provisioned_nodes": [1]}, power)
    assert found["energy_kwh"] == pytest.approx(0.001)


def test_the_catalogue_names_power_or_says_nothing(tmp_path):
    assert (gpu_types()["t4"].idle_w, gpu_types()["t4"].busy_w) == (8, 71)
    assert gpu_types()["h100"].busy_w is None
    path = tmp_path / "types.yaml"
    path.write_text("format: simsched-gpu-types/1\ntypes: {x: {memory_mb: 1, idle_w: 3}}\n", encoding="utf-8")
    with pytest.raises(InputError, match="give both 'idle_w' and 'busy_w'"):
        read_gpu_types(path)


EXPERIMENT = """\
name: power
cluster:
  groups: [{nodes: 1, gpus_per_node: 1, gpu_type: t4}, {nodes: 1, gpus_per_node: 2, gpu_type: v100}]
  power: {node_w: 100}
workload: {path: trace.csv, recipe: replay}
engine: {restart_delay_s: 0}
policies: [{name: fifo}]
"""


@pytest.fixture
def read(tmp_path):
    (tmp_path / "trace.csv").write_text("submit_time,num_gpus,duration\n0,1,3600\n0,2,1800\n", encoding="utf-8")
    (tmp_path / "e.yaml").write_text(EXPERIMENT, encoding="utf-8")
    return lambda *overrides: read_experiment(tmp_path / "e.yaml", overrides)


def test_an_experiment_gives_the_energy_of_its_run(read, tmp_path):
    (cell,) = read_run(run_grid(make_grid(read()), tmp_path / "out").folder).cells
    # The T4 is held for an hour (or a V100 is, and the T4 idle): FIFO takes the first type that fits.
    expected_kwh = (71 + 2 * 306 * 0.5 + 2 * 35 * 0.5 + 2 * 100) / 1000
    assert cell.summary["energy_kwh"] == pytest.approx(expected_kwh)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("cluster={nodes: 1, gpu_type: h100, power: {}}", "power of GPUs of type 'h100' is unknown: give"),
        ("cluster.power.asleep_w=-1", "at least 0"),
        ("cluster={gpu_type: h100, power: {idle_w: {h100: 70}}}", "power.busy_w: {h100: ...}"),
        ("cluster.power.busy_w={t4: -3}", "at least 0"),
    ],
)
def test_power_that_cannot_be_is_refused(read, override, message):
    with pytest.raises(InputError, match=message):
        read(override)


def test_what_an_experiment_says_of_power_goes_before_the_catalogue(read):
    task = make_grid(read("cluster.power={busy_w: {t4: 50}}")).cells[0].task
    assert task.about["power"]["gpus"] == {"t4": {"idle_w": 8, "busy_w": 50}, "v100": {"idle_w": 35, "busy_w": 306}}
