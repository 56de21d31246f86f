"""Muri's artifact on the engine: against the independent replay on a small trace, and against its printed figures."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from simsched.cli.main import cli
from simsched.policy.grouping.matching import exact_matching
from simsched.results.reader import read_table
from tests.validation.oracles.muri_replay import (
    Muri,
    read_jobs,
    replay_antman,
    replay_muri,
    replay_shortest,
    replay_tiresias,
)

SMALL = Path(__file__).parents[1] / "data" / "muri-small.csv"


def own(weights):
    return exact_matching(np.array(weights))


REPLAYS = {
    "SRTF": lambda jobs: replay_shortest(jobs, lambda job: job.remaining * job.iteration_s),
    "SRSF": lambda jobs: replay_shortest(jobs, lambda job: job.remaining * job.iteration_s * job.gpus),
    "Tiresias-L": replay_tiresias,
    "AntMan": replay_antman,
    "Muri-L-no-matching": lambda jobs: replay_muri(jobs, Muri(least_attained=True, matcher=None)),
    "Muri-S": lambda jobs: replay_muri(jobs, Muri(least_attained=False, matcher=own)),
    "Muri-L": lambda jobs: replay_muri(jobs, Muri(least_attained=True, matcher=own, split_slow=True)),
}


def run(trace, out, *labels, overrides=("report.reference=SRTF",), experiment="validation/muri"):
    options = [part for label in labels for part in ("--policy", label)]
    changes = [part for change in (f"workload.path={trace}", *overrides) for part in ("-o", change)]
    arguments = ["run", experiment, *changes, *options, "--out", out, "--no-plots", "--workers", 1]
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="simsched")
    assert done.exit_code == 0, done.output
    (home,) = (path.parent for path in Path(out).glob("*/run.json"))
    cells = json.loads((home / "run.json").read_text())["cells"]
    folders = {cell["policy"]: home / cell["folder"] for cell in cells}
    return {
        label: (read_table(folder, "jobs"), json.loads((folder / "summary.json").read_text()))
        for label, folder in folders.items()
    }


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return run(SMALL, tmp_path_factory.mktemp("muri"), *REPLAYS)


@pytest.mark.parametrize("label", REPLAYS)
def test_every_job_ends_when_the_independent_replay_says(small, label):
    jobs = read_jobs(SMALL)
    REPLAYS[label](jobs)
    table, _ = small[label]
    ends = dict(zip(table["job_id"].astype(str), table["end_time_s"], strict=True))
    assert ends == pytest.approx({str(job.index): job.end_s for job in jobs}, rel=1e-12)


def test_the_charge_at_every_event_is_a_switch(small, tmp_path):
    change = "policies.SRTF.params.charge_every_event=false"
    table, _ = run(SMALL, tmp_path, "SRTF", overrides=[change, "report.reference=SRTF"])["SRTF"]
    charged, _ = small["SRTF"]
    assert table["jct_s"].mean() < charged["jct_s"].mean()


def test_recorded_matchings_are_played_back(tmp_path):
    made = []

    def recording(weights):
        made.append([[int(index) for index in pair] for pair in own(weights)])
        return made[-1]

    jobs = read_jobs(SMALL)
    replay_muri(jobs, Muri(least_attained=False, matcher=recording))
    assert any(made)
    (tmp_path / "matchings.json").write_text(json.dumps({"matchings": made}))
    change = f"policies.Muri-S.params.matchings={tmp_path / 'matchings.json'}"
    table, _ = run(SMALL, tmp_path / "out", overrides=[change], experiment="validation/muri-recorded")["Muri-S"]
    ends = dict(zip(table["job_id"].astype(str), table["end_time_s"], strict=True))
    assert ends == pytest.approx({str(job.index): job.end_s for job in jobs}, rel=1e-12)


@pytest.fixture(scope="module")
def published(shared):
    return json.loads((shared / "muri" / "expected.json").read_text())["results"]


def test_srtf_on_trace_3_equals_every_printed_digit(shared, published, tmp_path):
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SIMSCHED_CHECK_INVARIANTS", raising=False)  # those are checked on the small trace
        _, summary = run(shared / "muri" / "trace3.csv", tmp_path, "SRTF")["SRTF"]
    expected = published["SRTF"]["trace3"]
    names = {"avg_jct_s": "jct_mean_s", "makespan_s": "makespan_s", "p99_jct_s": "jct_p99_ranked_s"}
    for theirs, ours in names.items():
        assert float(f"{summary[ours]:.10g}") == float(f"{expected[theirs]:.10g}")
