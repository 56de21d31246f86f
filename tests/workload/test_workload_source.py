"""Making workloads of options: sources, recipes, errors, and the workload CSV."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from simsched.errors import InputError
from simsched.model.job import JobSpec
from simsched.workload import source
from simsched.workload.readers import trace_in_parts
from simsched.workload.readers.format import workload_files
from simsched.workload.readers.plain import WORKLOAD_OPTIONAL, WORKLOAD_REQUIRED, read_workload
from simsched.workload.recipes.as_is import specs_of
from simsched.workload.source import (
    WorkloadOptions,
    drawn_workload,
    load_trace,
    make_workload,
)
from simsched.workload.summary import describe, trace_statistics
from simsched.workload.trace import Trace, make_trace
from simsched.workload.write import write_workload_csv

TUNED = {
    "bert": [(6, 384)], "cifar10": [(6, 2048)], "deepspeech2": [(6, 320)], "imagenet": [(24, 3200)],
    "ncf": [(1, 32768)], "yolov3": [(4, 64)],
}  # fmt: skip
INITIAL = {"bert": 12, "cifar10": 128, "deepspeech2": 20, "imagenet": 200, "ncf": 256, "yolov3": 8}
ROOT = Path(__file__).resolve().parents[2]
HEADER = "name,time,application,num_replicas,batch_size"


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def make(seed=1, **options):
    return make_workload(WorkloadOptions(**options), seed, TUNED, INITIAL)


def test_the_default_is_the_pollux_recipe_on_the_shipped_week():
    jobs = make()
    assert len(jobs) == 160
    assert {job.application for job in jobs} <= set(TUNED)
    assert max(job.submit_time_s for job in jobs) < 8 * 3600
    assert [job.submit_time_s for job in jobs] == sorted(job.submit_time_s for job in jobs)


def test_the_runs_seed_decides_unless_the_options_name_one():
    assert make(seed=1, days=28) == make(seed=1, days=28)
    assert make(seed=1, days=28) != make(seed=2, days=28)
    fixed = WorkloadOptions(seed=7, days=28)
    assert make_workload(fixed, 1, TUNED, INITIAL) == make_workload(fixed, 2, TUNED, INITIAL)


def test_a_generated_source_differs_by_seed_and_replays_every_job():
    jobs = make(source="philly-generated", recipe="replay", days=1)
    again = make(source="philly-generated", recipe="replay", days=1)
    assert jobs == again
    assert jobs != make(seed=2, source="philly-generated", recipe="replay", days=1)
    assert {job.application for job in jobs} == {"fixed-duration"}
    statuses = {job.status for job in make(source="philly-generated", recipe="replay", days=1, statuses="all")}
    assert statuses == {"Pass", "Killed", "Failed"}


def test_a_plain_trace_may_name_applications_and_run_as_is(tmp_path):
    path = write(
        tmp_path,
        "t.csv",
        "submit_time,num_gpus,duration,application,batch_size\n20,4,0,yolov3,64\n10,1,90,fixed-duration,0\n",
    )
    jobs = make(source=path, recipe="as-is")
    assert [(j.application, j.submit_time_s, j.num_gpus, j.batch_size, j.duration_s) for j in jobs] == [
        ("fixed-duration", 0, 1, 0, 90),
        ("yolov3", 10, 4, 64, 0),
    ]


def test_a_workload_csv_is_taken_as_it_stands(tmp_path):
    path = write(tmp_path, "w.csv", f"{HEADER}\nz-0,5,ncf,1,32768\na-1,5,bert,6,384\nm-2,4,yolov3,4,64\n")
    jobs = make(source=path)
    assert [job.id for job in jobs] == ["m-2", "z-0", "a-1"], "by time, ties in the order of the file"
    assert jobs[1] == JobSpec("z-0", 5, 1, "ncf", 32768)
    assert make(source=path, jobs=2) == jobs[:2]


def test_a_workload_csv_reads_back_what_was_written(tmp_path):
    full = [
        JobSpec("a", 0, 1, duration_s=60, tenant="t", user="u", status="Killed", attempts=3),
        JobSpec("b", 9, 4, "yolov3", 64, 7),
    ]
    for name, jobs in (("full.csv", full), ("bare.csv", [JobSpec("b", 9, 4, "yolov3", 64)]), ("gz.csv.gz", full)):
        write_workload_csv(jobs, tmp_path / name)
        assert read_workload(tmp_path / name) == jobs
    assert (tmp_path / "bare.csv").read_text() == f"{HEADER}\nb,9,yolov3,4,64\n", "the published layout, byte for byte"
    assert (tmp_path / "full.csv").read_text().startswith("# simsched-workload 1\n")


def test_a_workload_csv_names_every_wrong_cell(tmp_path):
    path = write(
        tmp_path,
        "w.csv",
        f"{HEADER},duration,colour\na,0,ncf,0,5,1,red\na,x,,1,-2,1,red\nb,1.5,fixed-duration,1,0,0,red\n",
    )
    with pytest.raises(InputError) as caught:
        make(source=path)
    assert [str(problem).removeprefix(path) for problem in caught.value.problems] == [
        ": column 'colour' is unknown; known: application, attempts, batch_size, duration, name, num_replicas, status, "
        "tenant, time, user",
        ":2: column 'num_replicas': '0' is below 1; correct the line, or leave it out",
        ":3: column 'application': is missing; correct the line, or leave it out",
        ":3: column 'name': 'a' also names an earlier row; correct the line, or leave it out",
        ":3: column 'time': 'x' is not a number; correct the line, or leave it out",
        ":3: column 'batch_size': '-2' is below 0; correct the line, or leave it out",
        ":4: column 'time': '1.5' is not a whole number; correct the line, or leave it out",
        ":4: column 'duration': '0' must be at least 1 for 'fixed-duration'; correct the line, or leave it out",
    ]


def test_jobs_of_fixed_duration_need_the_column(tmp_path):
    path = write(tmp_path, "w.csv", f"{HEADER}\na,0,fixed-duration,1,0\n")
    with pytest.raises(InputError, match="column 'duration' is missing, but jobs of 'fixed-duration' need it"):
        make(source=path)


def test_workload_files_of_a_folder_are_in_the_order_of_their_numbers(tmp_path):
    for number in (10, 2, 1):
        write(tmp_path, f"workload-{number}.csv", HEADER)
    assert [path.stem for path in workload_files(tmp_path)] == ["workload-1", "workload-2", "workload-10"]
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match="holds no CSV file"):
        workload_files(tmp_path / "none")


def test_the_examples_and_options_of_the_manual_are_those_of_the_code(tmp_path):
    manual = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    section = manual.split("## Workload CSV, version 1")[1].split("## ")[0]
    jobs = make(source=write(tmp_path, "w.csv", section.split("```csv\n")[1].split("```")[0]))
    assert [job.id for job in jobs] == ["cifar10-0", "deepspeech2-1", "ncf-2"]
    assert all(f"`{column}`" in section for column in (*WORKLOAD_REQUIRED, *WORKLOAD_OPTIONAL))
    assert all(f"`{field.name}`" in manual for field in fields(WorkloadOptions))


def test_a_folder_of_workloads_is_no_source_of_one_run(tmp_path):
    for number in (1, 2):
        write(tmp_path, f"workload-{number}.csv", f"{HEADER}\na,0,ncf,1,256\n")
    with pytest.raises(InputError, match="is a folder of 2 workloads, but a run takes one; name one of them"):
        make(source=str(tmp_path))


def test_all_wrong_options_are_reported_at_once():
    with pytest.raises(InputError) as caught:
        make(jobs=0, load=0.0, recipe="polux", configs="tune", start_hour=24, window_h=0, sample=-1)
    assert sorted(problem.where for problem in caught.value.problems) == [
        "workload.configs", "workload.jobs", "workload.load", "workload.recipe", "workload.sample",
        "workload.start_hour", "workload.window_h",
    ]  # fmt: skip
    assert "did you mean 'pollux'?" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"source": "philly-synthetics"}, "is neither a file nor a known source; did you mean 'philly-synthetic'?"),
        (
            {"load": 200.0, "source": "philly-synthetic"},
            "32000 jobs were requested, but only 20207 came between 2:00 and 9:59",
        ),
        ({"load": float("nan")}, "workload.load: nan is out of range"),
    ],
)
def test_wrong_sources_and_too_few_jobs_are_refused(options, said):
    with pytest.raises(InputError) as caught:
        make(**options)
    assert said in str(caught.value)


def test_a_job_list_cannot_be_sampled_or_stretched(tmp_path):
    path = write(tmp_path, "w.csv", f"{HEADER}\na,0,ncf,1,256\n")
    with pytest.raises(InputError, match="is a list of jobs ready to run; use recipe: as-is"):
        make(source=path, recipe="pollux")
    with pytest.raises(InputError, match="2 cannot be applied to a list of jobs"):
        make(source=path, load=2.0)


def test_describe_counts_by_application_gpus_and_batch():
    jobs = [JobSpec("a", 5, 4, "yolov3", 64), JobSpec("b", 9, 4, "yolov3", 64), JobSpec("c", 7, 1, "ncf", 32768)]
    table = describe(jobs)
    assert table.to_dict("records") == [
        {"application": "ncf", "num_gpus": 1, "batch_size": 32768, "jobs": 1, "share": 1 / 3, "first_submit_s": 7,
         "last_submit_s": 7},
        {"application": "yolov3", "num_gpus": 4, "batch_size": 64, "jobs": 2, "share": 2 / 3, "first_submit_s": 5,
         "last_submit_s": 9},
    ]  # fmt: skip


def test_statistics_of_a_hand_made_trace():
    # Four jobs: two of one batch (same tenant and GPUs, 300 s apart), one of another tenant, one an hour later.
    columns = {
        "submit_time_s": [0, 300, 300, 3900],
        "num_gpus": [1, 1, 1, 8],
        "duration_s": [1800, 1800, 36000, 450000],
        "tenant": ["a", "a", "b", "a"],
        "status": ["Pass", "Failed", "Pass", ""],
        "attempts": [1, 3, 1, 1],
    }
    figures = trace_statistics(make_trace("t", "test", columns, dropped={"never started": 2, "no": 0}))
    assert figures["jobs"] == 4
    assert figures["span_s"] == 3900
    assert figures["gpu_hours"] == pytest.approx(0.5 + 0.5 + 10 + 1000)
    assert figures["mean_gpus"] == 2.75
    assert figures["gpu_mix"][1]["gpu_hours_share"] == pytest.approx(1000 / 1011)
    assert figures["size_classes"]["S"]["share"] == 0.5
    assert [figures["size_classes"][name]["jobs"] for name in ("S", "M", "L", "XL", "XXL")] == [2, 0, 1, 0, 1]
    assert figures["interarrival_s"]["mean"] == 1300
    # Gaps 300, 0, 3600: standard deviation sqrt(2,660,000), that is 1.2546 times the mean.
    assert figures["interarrival_s"]["cv"] == pytest.approx(2_660_000**0.5 / 1300)
    assert figures["interarrival_s"]["share_within_60_s"] == pytest.approx(1 / 3)
    assert figures["batches"] == {"count": 3, "mean_size": 4 / 3, "max_size": 2, "share_of_one_job": 2 / 3}
    assert figures["status"] == {"Pass": 2, "Failed": 1}
    assert figures["tenants"] == {"a": 3, "b": 1}
    assert figures["attempts_mean"] == 1.5
    assert figures["dropped"] == {"never started": 2}
    assert figures["duration_s"]["max"] == 450000


def test_statistics_of_one_job_are_defined():
    figures = trace_statistics(make_trace("t", "test", {"submit_time_s": [7], "num_gpus": [1], "duration_s": [0]}))
    assert figures["interarrival_s"] == {}
    assert figures["gpu_hours"] == 0


def test_the_shipped_weeks_say_what_they_are():
    trace = load_trace(WorkloadOptions(source="philly-synthetic"), 1)
    assert trace.name == "philly-synthetic"
    assert len(trace) == 55_396
    assert trace.origin.strftime("%A") == "Monday"


def test_seeds_draw_from_stretches_of_their_own_and_from_the_same_ten_weeks():
    own = [load_trace(WorkloadOptions(days=7), seed).table["duration_s"].tolist() for seed in (1, 2)]
    assert own[0] != own[1]
    fixed = [load_trace(WorkloadOptions(source="philly-synthetic"), seed).table for seed in (1, 2)]
    assert fixed[0].equals(fixed[1])


def test_a_stretch_is_a_year_to_sample_from_and_a_week_to_replay():
    assert load_trace(WorkloadOptions(), 1).table["submit_time_s"].max() > 360 * 86400
    assert load_trace(WorkloadOptions(recipe="replay"), 1).table["submit_time_s"].max() < 7 * 86400


def test_an_even_draw_is_an_option_and_changes_nothing_but_which_jobs_are_drawn():
    plain, even = make(days=28), make(days=28, stratify=True)
    assert len(plain) == len(even) == 160
    assert plain != even
    assert even == make(days=28, stratify=True)


def test_jobs_share_the_texts_that_repeat():
    columns = {"submit_time_s": [0, 1, 2], "num_gpus": [1, 1, 1], "duration_s": [5, 5, 5]}
    tenants = ["".join(["te", "am"]), "".join(["te", "am"]), "other"]
    first, second, third = specs_of(make_trace("t", "t", columns | {"tenant": tenants}).table)
    assert (first.tenant, third.tenant) == ("team", "other")
    assert first.tenant is second.tenant
    assert first.status is third.status


@pytest.mark.parametrize("last", [60, 2])
def test_a_long_file_gives_the_jobs_that_a_short_one_gives(
    last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read in parts where it is sorted, and else whole."""
    path = tmp_path / "trace.csv"
    times = [*range(0, 50, 5), last]
    path.write_text("submit_time,num_gpus,duration\n" + "".join(f"{at},{1 + at % 3},{at + 9}\n" for at in times))
    options = WorkloadOptions(source=str(path), recipe="replay", from_s=5, max_gpus=2, jobs=5)
    whole, parts = drawn_workload(options, 1), list[int]()

    def in_fours(*given: Any) -> Iterator[Trace]:
        for part in trace_in_parts(*given, lines=4):
            parts.append(len(part))
            yield part

    monkeypatch.setattr(source, "_LONG_BYTES", 0)
    monkeypatch.setattr(source.readers, "trace_in_parts", in_fours)
    assert drawn_workload(options, 1) == whole
    assert parts == ([4, 4, 3] if last == 60 else [4, 4])
