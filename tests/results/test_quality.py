"""Quality: when losses have fallen, how far they are on average, and how right predictions were."""

import numpy as np
import pandas as pd
import pytest
import yaml

from simsched.errors import InputError
from simsched.experiment.grid import make_grid
from simsched.experiment.running.runner import run_grid
from simsched.experiment.validation import read_experiment
from simsched.report.figures.draw import figure_names
from simsched.report.figures.evaluation import predictions, predictions_data, quality, quality_data
from simsched.results.analyses import PREDICTIONS_FILE, has_predictions, prediction_errors
from simsched.results.metric import LossTable, Tables
from simsched.results.quality import (
    LOSSES_FILE,
    QUALITY_METRICS,
    lives,
    mean_loss,
    read_losses,
    write_losses,
)
from simsched.results.reader import read_run

#: The loss falls by half within 10 of progress, and by the other half within 90 more.
TABLE = LossTable((0.0, 10.0, 100.0), (1.0, 0.5, 0.0))
JOBS = pd.DataFrame(
    {"job_id": ["a", "b"], "application": ["toy", "other"], "submit_time_s": [0, 0], "end_time_s": [210, 50]}
)
#: It waits for 10 s, makes 1 of progress a second for 20 s, waits again for 100 s, and makes the rest at the same rate.
HELD = pd.DataFrame(
    {
        "job_id": ["a", "b", "a"],
        "start_s": [10, 0, 130],
        "end_s": [30, 50, 210],
        "progress": [0.0, 0.0, 20.0],
        "rate": [1.0, 1.0, 1.0],
        "gpus": [1, 1, 2],
        "batch_size": [16, 16, 16],
        "throughput": [16.0, 16.0, 32.0],
    }
)


def test_a_life_worked_by_hand():
    (job,) = lives(JOBS, HELD, {"toy": TABLE})
    assert job.time_to(0.5) == 20
    # At 90 % the loss is 0.1, at a progress of 10 + 0.8 x 90 = 82: 62 s after the second start.
    assert job.time_to(0.9) == pytest.approx(130 + 62)
    assert job.time_to(1.0) == 210
    assert job.loss_at(np.array([0, 10, 15, 20, 130, 210])) == pytest.approx([1, 1, 0.75, 0.5, 4 / 9, 0])
    # 10 s at 1, 10 s at 0.75 on average, 10 s between 0.5 and 4/9, 100 s at 4/9, 80 s from there to 0.
    area = 10 + 7.5 + 10 * (0.5 + 4 / 9) / 2 + 100 * 4 / 9 + 80 * 4 / 9 / 2
    assert mean_loss([job]) == pytest.approx(area / 210, rel=0.01)
    assert mean_loss([]) is None


def test_a_job_that_is_killed_takes_until_its_end():
    short = HELD.iloc[:1]
    (job,) = lives(JOBS, short, {"toy": TABLE})
    assert job.time_to(0.9) == 210


def test_metrics_are_there_only_where_losses_are():
    with_losses = Tables(JOBS, HELD, None, 4, losses={"toy": TABLE})
    values = {metric.name: metric.compute(with_losses) for metric in QUALITY_METRICS}
    assert values["time_to_90_mean_s"] == pytest.approx(192)
    assert values["time_to_95_mean_s"] == pytest.approx(130 + 71)
    for tables in (
        Tables(JOBS, HELD, None, 4),
        Tables(JOBS, None, None, 4, losses={"toy": TABLE}),
    ):
        assert {metric.compute(tables) for metric in QUALITY_METRICS} == {None}


def test_losses_are_written_and_read(tmp_path):
    assert read_losses(tmp_path) is None
    write_losses(tmp_path, {"toy": TABLE})
    assert read_losses(tmp_path) == {"toy": TABLE}
    (tmp_path / LOSSES_FILE).write_text('{"toy": {}}')
    with pytest.raises(InputError, match=r"losses\.json.*run the experiment again"):
        read_losses(tmp_path)


class FakeCell:
    """A cell whose tables are at hand."""

    def __init__(self, folder):
        self.folder = folder

    def table(self, name, columns):
        return {"jobs": JOBS, "allocations": HELD}[name][list(columns)]


def test_errors_of_predictions_worked_by_hand(tmp_path):
    cell = FakeCell(tmp_path)
    assert not has_predictions(cell)
    rows = ("10,a,0,200,1,1.5", "130,a,20,90,2,0.5", "130,a,20,100,4,0.5", "131,gone,0,1,1,1")
    (tmp_path / PREDICTIONS_FILE).write_text("time_s,job_id,progress,end,gpus,step_s\n" + "\n".join(rows) + "\n")
    errors = prediction_errors(cell)
    assert errors["done"].tolist() == [0, 0.2, 0.2]
    assert errors["end_error"].tolist() == pytest.approx([1, -0.1, 0])
    assert errors["step_error"].tolist()[:2] == pytest.approx([0.5, 0])
    assert np.isnan(errors["step_error"].iloc[2]), "it never ran on 4 GPUs"
    data = predictions_data({"online": [errors]})
    held = data[(data["panel"] == "end") & (data["series"] == "all")].set_index("x")["y"]
    assert (held[0.0], held[0.1], held[0.5]) == pytest.approx((1, 1, 0)), "the last word counts"
    figure, drawn = predictions(data, title="t")
    assert drawn is data
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "online: predicted completion",
        "predicted step time",
    ]
    (tmp_path / PREDICTIONS_FILE).write_text("time_s\n1\n")
    with pytest.raises(InputError, match="lacks the column 'job_id'"):
        prediction_errors(cell)


def test_the_figure_of_quality():
    jobs = lives(JOBS, HELD, {"toy": TABLE})
    data = quality_data({"one": [jobs], "two": [jobs, jobs]})
    times = data[(data["policy"] == "one") & (data["panel"] == "time_to")].set_index("x")["y"]
    assert times[0.9] == pytest.approx(192)
    loss = data[(data["policy"] == "two") & (data["panel"] == "normalised_loss")]
    assert loss["y"].iloc[0] == 1
    assert loss["y"].is_monotonic_decreasing
    figure, _ = quality(data, title="t", seeds=2)
    assert [len(axes.get_lines()) for axes in figure.axes] == [2, 2]


def test_a_run_records_losses_and_predictions(tmp_path):
    jobs = [f"job-{i},{60 * i},ncf,1,32768" for i in range(4)]
    (tmp_path / "jobs.csv").write_text("name,time,application,num_replicas,batch_size\n" + "\n".join(jobs) + "\n")
    policies = [{"name": "slaq"}, {"name": "optimus-online", "params": {"interval_s": 60, "initial_samples": 0}}]
    experiment = {"name": "tiny", "cluster": {"nodes": 1, "gpus_per_node": 2}, "workload": {"path": "jobs.csv"},
                  "policies": policies}  # fmt: skip
    found = {}
    for losses in (True, False):
        (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(experiment | {"losses": losses}))
        result = run_grid(make_grid(read_experiment(tmp_path / "tiny.yaml")), tmp_path / str(losses))
        assert not result.failures
        found[losses] = read_run(result.folder)
    for cell, bare in zip(found[True].cells, found[False].cells, strict=True):
        assert set(cell.summary) - set(bare.summary) == {metric.name for metric in QUALITY_METRICS}
        assert 0 < cell.summary["time_to_90_mean_s"] < cell.summary["time_to_95_mean_s"] < cell.summary["jct_mean_s"]
        assert cell.folder.name != bare.folder.name
    assert {"quality", "predictions"} <= set(figure_names(found[True]))
    assert "quality" not in figure_names(found[False])
