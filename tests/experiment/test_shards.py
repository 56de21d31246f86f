"""Cells whose jobs are cut: exact where the cluster is empty, else with an error that is measured."""

from __future__ import annotations

import pickle
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

from simsched.api import run
from simsched.cli import cli
from simsched.errors import InputError
from simsched.experiment import stored_jobs
from simsched.experiment.cuts import cuts_of
from simsched.experiment.stored_jobs import HeldJobs, StoredJobs, stored
from simsched.experiment.task import digest_of
from simsched.model import JobSpec
from simsched.model.job import values_of
from simsched.policy import Decision, Policy, Traits, View
from simsched.results import TableWriter, read_json, read_table
from simsched.results.integrity import MANIFEST_FILE
from simsched.testing import check_policy
from simsched.workload.readers import read_trace, trace_in_parts

#: Four days of busy hours, after each of which the cluster is empty until the next.
DAY_S = 86_400
TABLES = ("jobs.parquet", "allocations.parquet", "rounds.parquet")


def bursts(path: Path) -> Path:
    """Write a trace of four bursts of 30 jobs that wait for each other on eight GPUs."""
    rng = np.random.default_rng(1)
    rows = [
        f"{day * DAY_S + second},{2 ** rng.integers(0, 4)},{rng.integers(20, 900)},{'ab'[int(rng.integers(2))]}"
        for day in range(4)
        for second in sorted(rng.integers(0, 3000, 30).tolist())
    ]
    path.write_text("\n".join(["submit_time,num_gpus,duration,tenant", *rows]) + "\n")
    return path


def experiment(trace: Path, policy: str, gpus: int = 8, **more: Any) -> dict[str, Any]:
    """Return an experiment that replays a trace on nodes of up to four GPUs."""
    return {
        "name": "cut",
        "cluster": {"nodes": max(gpus // 4, 1), "gpus_per_node": min(gpus, 4)},
        "workload": {"path": str(trace), "recipe": "replay"},
        "engine": {"restart_delay_s": 0},
        "policies": [{"name": policy, **more}],
        "report": {"plots": False},
    }


def cell_of(content: dict[str, Any], out: Path, changes: dict[str, Any] | None = None) -> Path:
    """Run an experiment of one cell and return its folder."""
    results = run(content, changes, out=out, in_process=True)
    (cell,) = (results.folder / "cells").iterdir()
    return cell


def told_of(cell: Path) -> dict[str, Any]:
    """Return what the manifest of a cell tells of its shards, without what they took."""
    told = dict(read_json(cell / MANIFEST_FILE)["shards"])
    assert told.pop("cpu_s") >= 0
    return told


@pytest.mark.parametrize(("policy", "rows"), [("tiresias", None), ("slurm-backfill", None), ("las", 50)])
def test_where_the_cluster_is_empty_the_tables_are_those_of_one_simulation(
    policy: str, rows: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the policy remembers in between, and also of tables with several groups of `rows`."""
    if rows is not None:
        defaults: Any = TableWriter.__init__.__kwdefaults__
        monkeypatch.setitem(defaults, "row_group_rows", rows)
    content = experiment(bursts(tmp_path / "trace.csv"), policy)
    whole = cell_of(content, tmp_path / "whole")
    cut = cell_of(content, tmp_path / "cut", {"shards.parts": 4})
    assert whole.name == cut.name  # nothing that could change results differs
    assert {name: (whole / name).read_bytes() for name in TABLES} == {n: (cut / n).read_bytes() for n in TABLES}
    assert (whole / "summary.json").read_bytes() == (cut / "summary.json").read_bytes()
    told = told_of(cut)
    assert len(told["cuts_s"]) == 3
    assert told["busy_cuts"] == 0
    assert not (cut.parent.parent / ".shards").exists()


def test_a_cut_that_meets_a_busy_cluster_is_undone(tmp_path: Path) -> None:
    """Three jobs of 100 s on one GPU end at 300 s: without waiting all would be done at 100, before the next at 150."""
    trace = tmp_path / "trace.csv"
    trace.write_text("submit_time,num_gpus,duration\n0,1,100\n0,1,100\n0,1,100\n150,1,10\n1000,1,5\n1001,1,5\n")
    content = experiment(trace, "fifo", gpus=1)
    whole, cut = cell_of(content, tmp_path / "whole"), cell_of(content, tmp_path / "cut", {"shards.parts": 2})
    assert [(whole / name).read_bytes() for name in TABLES] == [(cut / name).read_bytes() for name in TABLES]
    assert told_of(cut) == {"cuts_s": [], "busy_cuts": 1}


def test_the_error_of_a_warm_up_is_measured(tmp_path: Path) -> None:
    """Jobs of 200 s come every 10 s to 20 GPUs, and the first takes 205 s: jobs 20, 40 and 60 wait for 5 s.

    Cut at job 40 with 200 s of warm-up, job 20 starts at once in the empty cluster of its shard, and so jobs 40 and 60,
    2 of 40, end at 600 and 800 s, 5 s early.
    """
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{10 * k},1,{200 + 5 * (k == 0)}\n" for k in range(80))
    trace.write_text("submit_time,num_gpus,duration\n" + rows)
    content, change = experiment(trace, "fifo", gpus=20), {"shards.parts": 2, "shards.warm_up_s": 200}
    cut, whole = cell_of(content, tmp_path / "cut", change), cell_of(content, tmp_path / "whole")
    assert cut.name != whole.name
    jobs = read_table(cut, "jobs")
    assert jobs["job_id"].tolist() == [f"job-{k}" for k in range(80)]
    assert jobs["end_time_s"].tolist() == [10 * k + 200 + 5 * (k in (0, 20)) for k in range(80)]
    assert told_of(cut) == {
        "cuts_s": [400.0],
        "warm_up_s": 200.0,
        "error": {
            "jobs": 40,
            "same_end": 0.95,
            "largest_difference_s": 5.0,
            "jct_mean_s": 200.0,
            "uncut_jct_mean_s": 200.25,
            "queueing_mean_s": 0.0,
            "uncut_queueing_mean_s": 0.25,
        },
    }


def test_tables_that_cutting_makes_wrong_are_refused(tmp_path: Path) -> None:
    """Jobs of 15 s come every 10 s to one GPU: job k ends at 15 (k + 1) s, and cut at 4 those from there 15 s early.

    They take 20 to 35 s instead of 35 to 50: 27.5 instead of 42.5 on average.
    """
    trace = tmp_path / "trace.csv"
    trace.write_text("submit_time,num_gpus,duration\n" + "".join(f"{10 * k},1,15\n" for k in range(8)))
    content = experiment(trace, "fifo", gpus=1) | {"shards": {"parts": 2, "warm_up_s": 10}}
    with pytest.raises(InputError, match=r"mean JCT of the second shard by -35\.3%"):
        run(content, out=tmp_path / "out", in_process=True)


def test_rows_of_shards_that_overlap_are_in_the_order_of_their_ends(tmp_path: Path) -> None:
    """A job of 100 s that comes before the cut ends after jobs that come behind it."""
    trace = tmp_path / "trace.csv"
    rows = ["0,1,100", "5,1,20", "20,1,10", "25,1,10"]
    trace.write_text("\n".join(["submit_time,num_gpus,duration", *rows]) + "\n")
    content = experiment(trace, "fifo", gpus=4)
    cut = cell_of(content, tmp_path / "cut", {"shards.parts": 2, "shards.warm_up_s": 1})
    whole = cell_of(content, tmp_path / "whole")
    assert read_table(cut, "jobs")["job_id"].tolist() == ["job-1", "job-2", "job-3", "job-0"]
    assert [(whole / name).read_bytes() for name in TABLES[:2]] == [(cut / name).read_bytes() for name in TABLES[:2]]


def test_the_command_says_how_exact_the_tables_are(tmp_path: Path) -> None:
    trace = bursts(tmp_path / "trace.csv")
    arguments = ["run", "tiresias/philly-full", "-o", f"workload.path={trace}", "--policy", "FIFO", "--in-process"]
    done = CliRunner().invoke(cli, [*arguments, "--shards", "4", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "joined from 4 shards, between which the cluster was empty: the tables are exact." in done.output


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"policies": [{"name": "qssf"}]}, "the policy 'qssf' may remember completed jobs"),
        (
            {"policies": [{"name": "slurm-backfill", "params": {"priority": {"fair_share": 1.0}}}]},
            "may remember completed jobs",
        ),
        ({"failures": {"node_mtbf_h": 100, "repair_median_h": 1}}, "'failures' needs all jobs"),
        ({"losses": True}, "'losses' needs all jobs"),
    ],
)
def test_what_needs_all_jobs_is_refused(change: dict[str, Any], said: str, tmp_path: Path) -> None:
    content = experiment(bursts(tmp_path / "trace.csv"), "fifo") | change | {"shards": {"parts": 4}}
    with pytest.raises(InputError, match=said):
        run(content, out=tmp_path / "out", in_process=True)


def test_without_a_warm_up_a_busy_cluster_is_not_cut() -> None:
    jobs = [JobSpec(f"{k}", 10 * k, 1, duration_s=15) for k in range(8)]
    with pytest.raises(InputError, match="never empty"):
        cuts_of(jobs, 2, 0)
    assert cuts_of(jobs, 2, None).warm_up_s == 4  # a tenth of 70 s / 2, rounded up


def test_jobs_in_a_file_are_those_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_jobs, "_AT_ONCE", 8)
    jobs = tuple(JobSpec(f"job {k}", k / 3, 1 + k % 3, duration_s=k, tenant="é" * (k % 2)) for k in range(20))
    kept = StoredJobs.write(tmp_path / "jobs", iter(jobs))
    assert kept.digest == digest_of(jobs)
    assert tuple(kept) == jobs
    assert tuple(reversed(kept)) == jobs[::-1]
    assert kept[7:10] == list(jobs[7:10])
    assert kept[-1] == jobs[-1]
    assert list(kept.between(6, 16)) == list(jobs[6:16])
    assert tuple(pickle.loads(pickle.dumps(kept))) == jobs
    assert StoredJobs.write(tmp_path / "none", ()).digest == digest_of(())
    for first, end in ((0, 20), (7, 9), (8, 16), (9, 10), (7, 17), (3, 16)):
        some = kept.part(tmp_path / "some", first, end)
        assert tuple(some) == jobs[first:end]
        assert (len(some), some[0], some[-1]) == (end - first, jobs[first], jobs[end - 1])
        assert tuple(pickle.loads(pickle.dumps(some))) == jobs[first:end]
        assert some.digest == kept.part(tmp_path / "again", first, end).digest != kept.digest
        assert list(values_of(some, "id")) == [job.id for job in jobs[first:end]]
        few = list(some.values_of("tenant", "user", "num_gpus", first=1, end=end - first))
        assert few == [(job.tenant, "", job.num_gpus) for job in jobs[first + 1 : end]]


def test_jobs_in_memory_are_the_same_in_another_process_and_have_one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = tuple(JobSpec(f"job-{n}", n, 1, duration_s=1) for n in range(20))
    monkeypatch.setattr(stored_jobs, "_AT_ONCE", 8)
    assert pickle.loads(pickle.dumps(HeldJobs(jobs))) == jobs
    assert digest_of(HeldJobs(jobs)) == digest_of(jobs) == digest_of([*jobs])
    assert digest_of((1, "a")) == sha256(b"[1,'a']").hexdigest()


def test_a_temporary_file_goes_with_its_jobs() -> None:
    kept = stored(iter([JobSpec("a", 0, 1)]))
    path = kept.path
    assert path.is_file()
    del kept
    assert not path.exists()


def test_a_trace_in_parts_is_the_trace(tmp_path: Path) -> None:
    for path in (bursts(tmp_path / "seconds.csv"), tmp_path / "dates.csv"):
        if not path.exists():
            days = "".join(f"2020-01-{1 + k:02} 10:00:00,1,{k + 1}\n" for k in range(9))
            path.write_text("# a comment\nsubmit_time,num_gpus,duration\n" + days)
        whole, parts = read_trace(path), list(trace_in_parts(path, lines=4))
        assert len(parts) > 2
        assert {part.origin for part in parts} == {whole.origin}
        for name in whole.columns:
            assert np.concatenate([part.column(name) for part in parts]).tolist() == whole.column(name).tolist()


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("5,1,1,a\n6,1,1,b\n4,1,1,c\n", "not sorted by submission"),
        ("5,1,1,a\n6,1,1,b\n7,1,1,a\n", "have the same name"),
        ("5,1,1,a\n6,1,1,b\n7,1,x,c\n", "trace.csv:4: .*'duration'"),
    ],
)
def test_a_trace_in_parts_is_checked(rows: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("submit_time,num_gpus,duration,job_id\n" + rows)
    with pytest.raises(InputError, match=said):
        list(trace_in_parts(path, lines=2))


class Counting(Policy):
    """Runs jobs in the order of their names until it has seen 30, then the other way round."""

    name: ClassVar[str] = "counting"
    traits: ClassVar[Traits] = Traits(forgets=True)

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the first that fits."""
        self._seen |= view.jobs.keys()
        order = sorted(view.jobs.values(), key=lambda job: job.age_s, reverse=len(self._seen) > 30)
        free = list(view.free_gpus)
        start = {}
        for job in order:
            node = next((n for n, count in enumerate(free) if count >= job.num_gpus), None)
            if not job.allocation and node is not None:
                free[node] -= job.num_gpus
                start[job.id] = ((node, job.num_gpus),)
        return Decision.change(start)


def test_the_kit_finds_a_policy_that_remembers() -> None:
    found = {failure.check for failure in check_policy(Counting, seeds=1)}
    assert "forgets as declared" in found
