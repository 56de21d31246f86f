"""What an experiment and a trace may say about failures, and how wrong input is refused."""

import json

import pytest
import yaml

from simsched.errors import InputError
from simsched.experiment.grid import make_grid
from simsched.experiment.validation import read_experiment
from simsched.workload.readers import read_trace
from simsched.workload.recipes.as_is import specs_of


def experiment(tmp_path, **more):
    (tmp_path / "jobs.csv").write_text("submit_time,num_gpus,duration\n0,1,300\n", encoding="utf-8")
    data = {
        "name": "e", "cluster": {"nodes": 2, "gpus_per_node": 1}, "policies": [{"name": "fifo"}],
        "workload": {"path": "jobs.csv", "recipe": "as-is"},
    }  # fmt: skip
    path = tmp_path / "e.yaml"
    path.write_text(yaml.safe_dump(data | more), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("failures", "said"),
    [
        ({"node_mtbf_h": 0}, "node_mtbf_h"),
        (
            {"checkpoint_interval_s": 60, "checkpoint_cost_s": 90},
            "a checkpoint of 90 s takes longer than its interval of 60 s",
        ),
        ({"setting": "moon-base"}, "setting"),
        ({"rack_nodes": 2}, "rack_mtbf_h"),
        ({"rack_nodes": 2, "racks": [[0]], "rack_mtbf_h": 1}, "not both"),
        ({"mtbf": 3}, "mtbf"),
        ({"node_mtbf_h": 3, "gpu_failures_per_day": 1}, "not both"),
        ({"node_mtbf_h": 3, "checkpoint_interval_s": "optimal"}, "an optimal interval needs 'checkpoint_cost_s'"),
        ({"checkpoint_interval_s": "optimal", "checkpoint_cost_s": 3}, "an optimal interval needs 'checkpoint_cost_s'"),
        ({"causes": [{"cause": "GPU", "failures": 1}], "repair_median_h": 2}, "have their own repair times"),
    ],
)
def test_wrong_failures_are_one_clear_message(tmp_path, failures, said):
    with pytest.raises(InputError) as caught:
        read_experiment(experiment(tmp_path, failures=failures))
    (problem,) = caught.value.problems
    assert said in problem.message
    assert problem.where.endswith("e.yaml")


def test_jobs_that_spares_leave_no_room_for_are_refused(tmp_path):
    path = experiment(
        tmp_path, failures={"node_mtbf_h": 1000, "hot_spares": 1}, cluster={"nodes": 2, "gpus_per_node": 1}
    )
    (tmp_path / "jobs.csv").write_text("submit_time,num_gpus,duration\n0,2,300\n", encoding="utf-8")
    with pytest.raises(InputError, match="with 1 nodes there are 1 GPUs of one type for a job of 2") as caught:
        make_grid(read_experiment(path))
    assert caught.value.problems[0].where.endswith("failures.hot_spares")


def test_a_list_of_outages_counts_from_the_experiments_folder_and_is_part_of_the_result(tmp_path):
    path = experiment(tmp_path, failures={"outages_path": "outages.csv"})
    (tmp_path / "outages.csv").write_text("node,down,up\n1,5,9\n", encoding="utf-8")
    (first,) = make_grid(read_experiment(path)).tasks
    assert [tuple(one) for one in first.failures.outages] == [(1, 5, 9, "outage", False)]
    (tmp_path / "outages.csv").write_text("node,down,up\n1,5,10\n", encoding="utf-8")
    (second,) = make_grid(read_experiment(path)).tasks
    assert first.key != second.key
    (tmp_path / "outages.csv").write_text("node,down,up\n2,5,10\n", encoding="utf-8")
    with pytest.raises(InputError, match="there is no node 2"):
        make_grid(read_experiment(path))


def test_pairs_count_from_the_experiments_folder(tmp_path):
    sharing = {"max_jobs": 2, "model": "pairs", "pairs_path": "pairs.csv"}
    header = "gpu_type,application,batch_size,other_application,other_batch_size,speed,other_speed\n"
    (tmp_path / "pairs.csv").write_text(header + "t4,a,0,b,0,0.5,0.6\n", encoding="utf-8")
    path = experiment(tmp_path, engine={"sharing": sharing})
    (task,) = make_grid(read_experiment(path)).tasks
    assert task.sharing.pairs_path == str(tmp_path / "pairs.csv")
    for row, said in (
        (",a,0,b,0,0.5,0.6", "gpu_type is empty"),
        ("t4,a,0,b,0,-1,1", "speed is -1"),
        ("t4,a,0,b,0,1.6,1", "speed is 1.6"),
    ):
        (tmp_path / "pairs.csv").write_text(header + row + "\n", encoding="utf-8")
        with pytest.raises(InputError, match=said):
            make_grid(read_experiment(path))


def test_the_philly_log_gives_the_attempts_of_its_jobs(tmp_path):
    def job(name, *attempts):
        times = [{"start_time": f"2017-10-07 {start}", "end_time": f"2017-10-07 {end}",
                  "detail": [{"ip": "m1", "gpus": ["gpu0"]}]} for start, end in attempts]  # fmt: skip
        submitted = "2017-10-07 00:00:00"
        return {"status": "Pass", "vc": "v", "user": "u", "jobid": name, "submitted_time": submitted, "attempts": times}

    path = tmp_path / "log.json"
    once = ("00:01:00", "00:01:30")
    path.write_text(json.dumps([job("a", once, ("00:02:00", "00:02:50")), job("b", once)]), encoding="utf-8")
    trace = read_trace(path)
    assert list(trace.table["attempts_s"]) == ["30 50", ""]
    assert [(job.duration_s, job.attempts_s) for job in specs_of(trace.table)] == [(80, (30.0, 50.0)), (30, ())]


def test_a_trace_csv_may_have_attempts(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("submit_time,num_gpus,duration,attempts,attempts_s\n0,1,80,2,30 50\n5,1,9,1,\n", encoding="utf-8")
    assert list(read_trace(path).table["attempts_s"]) == ["30 50", ""]
    path.write_text("submit_time,num_gpus,duration,attempts_s\n0,1,80,soon\n", encoding="utf-8")
    with pytest.raises(InputError, match="not a list of seconds"):
        read_trace(path)
