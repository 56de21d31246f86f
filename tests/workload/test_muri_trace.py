"""Reading Muri's traces, and jobs that know the stages of their iterations."""

from pathlib import Path

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.model.job import StageProfile
from simsched.model.tabulated import StagedJob
from simsched.toolkit.grouping.matching import exact_matching
from simsched.workload.source import WorkloadOptions, make_workload

SMALL = Path(__file__).parents[1] / "data" / "muri-small.csv"


def test_times_are_milliseconds_and_priority_0_is_guaranteed() -> None:
    jobs = make_workload(WorkloadOptions(source=str(SMALL)), seed=1)
    second = jobs[1]
    assert (second.id, second.submit_time_s, second.num_gpus, second.application) == ("1", 10.0, 8, "resnet18")
    assert (second.duration_s, second.total_steps, second.guaranteed) == (1350.0, 1500, False)
    assert second.profile == StageProfile(0.9, (0.72, 0.11, 0.07))
    assert jobs[0].guaranteed
    assert [job.submit_time_s for job in jobs] == sorted(job.submit_time_s for job in jobs)


def test_wrong_cells_are_named(tmp_path: Path) -> None:
    text = SMALL.read_text().replace("1,8,10000,1500,", "1,0,10000,x,").replace(",200,80,70,60,0", ",0,80,70,60,0")
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        make_workload(WorkloadOptions(source=str(tmp_path / "bad.csv")), seed=1)
    said = str(caught.value)
    assert "'0' is below 1" in said
    assert "'x' is not a number" in said
    assert "is not above 0" in said


def test_a_job_without_iterations_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 iteration"):
        StagedJob("vgg16", StageProfile(0.2, (0.1, 0.1, 0.1)), 0)


def test_rounding_decides_among_matchings_that_weigh_the_same() -> None:
    weights = np.array([[0, 0.5, 0.5, 0.3], [0.5, 0, 0.3, 0.5], [0.5, 0.3, 0, 0.5], [0.3, 0.5, 0.5, 0]])
    weights[0, 2] = weights[2, 0] = np.nextafter(0.5, 1)
    assert exact_matching(weights) == ((0, 2), (1, 3))
    assert exact_matching(np.zeros((3, 3))) == ()
