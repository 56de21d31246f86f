"""Shockwave's runs from recorded shares, as an experiment: every completion time, fairness ratio and round.

The published recordings are not part of the project, and their tests are skipped without them. A recording made by
hand, with what the independent replay in `oracles/` makes of it, takes the same way.
"""

import json
from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner

from simsched.cli.main import cli
from simsched.results.reader import read_run

pytestmark = pytest.mark.usefixtures("in_this_process")

HAND_MADE = Path(__file__).resolve().parents[1] / "data" / "shockwave"


def ran(out, trace, rates, shares, *more):
    values = {"workload.path": trace, "applications.path": rates, "policies.recorded.params.shares_path": shares}
    overrides = [part for key, value in values.items() for part in ("-o", f"{key}={value}")]
    arguments = ["run", "validation/shockwave", *overrides, *more, "--out", str(out), "--in-process"]
    done = CliRunner().invoke(cli, arguments, prog_name="simsched")
    assert done.exit_code == 0, done.output
    (home,) = (path.parent for path in Path(out).glob("*/run.json"))
    (cell,) = read_run(home).cells
    return cell


def agrees(cell, recording):
    expected = json.loads(recording.read_text())
    jobs = cell.jobs.set_index(cell.jobs["job_id"].astype(int)).sort_index()
    assert jobs["jct_s"].tolist() == pytest.approx(expected["jct_s"], abs=1e-6, rel=0)
    assert cell.summary["makespan_s"] == pytest.approx(expected["makespan_s"], abs=1e-6)
    assert rounds_of(cell) == expected["schedule"]
    ratios = pd.read_csv(cell.fairness_file, index_col="job_id").sort_index()
    assert ratios["rho"].round(5).tolist() == expected["rho_static"]
    printed = pd.read_csv(cell.folder / "shockwave-fairness.csv", index_col="job_id").sort_index()
    assert printed["rho"].tolist() == expected["rho_static"]
    assert json.loads((cell.folder / "shockwave-rounds.json").read_text()) == expected["schedule"]


def rounds_of(cell):
    """List the jobs of every round: those with an interval that begins with it."""
    begun = cell.allocations.groupby("start_s")["job_id"].apply(lambda ids: sorted(map(int, ids))).to_dict()
    decisions = cell.rounds[["time_s", "diagnostics"]].itertuples(index=False)
    return [begun.get(time_s, []) for time_s, diagnostics in decisions if "round" in diagnostics]


@pytest.mark.parametrize("name", ["max_min_fairness", "max_sum_throughput_perf"])
def test_a_published_run_is_reached_exactly(shared, tmp_path, name):
    data = shared / "shockwave"
    recording = data / f"{name}.json"
    agrees(ran(tmp_path, data / "120-jobs.trace", data / "tacc_throughputs.json", recording), recording)


def test_equal_shares_need_no_recording(shared, tmp_path):
    """Gandiva-Fair, of which makespan and mean are published."""
    data = shared / "shockwave"
    cell = ran(tmp_path, data / "120-jobs.trace", data / "tacc_throughputs.json", "null")
    published = json.loads((data / "published.json").read_text())["results"]["tacc_32gpus/gandiva_fair/simulation"]
    assert round(cell.summary["makespan_s"]) == published["makespan_s"]
    assert round(cell.summary["jct_mean_s"]) == published["avg_jct_s"]


def test_a_hand_made_recording_is_reached_exactly(tmp_path):
    recording = HAND_MADE / "recording.json"
    cell = ran(tmp_path, HAND_MADE / "synthetic.trace", HAND_MADE / "rates.json", recording, "-o", "cluster.nodes=1")
    agrees(cell, recording)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{}", "has no list 'allocations'"), ('{"allocations": [{"x": {"0": "all"}}]}', "has no shares 'x' by job")],
)
def test_what_is_no_recording_is_refused(tmp_path, content, message):
    (tmp_path / "shares.json").write_text(content)
    arguments = ["run", "validation/shockwave", "-o", f"workload.path={HAND_MADE / 'synthetic.trace'}"]
    arguments += ["-o", f"applications.path={HAND_MADE / 'rates.json'}"]
    arguments += ["-o", f"policies.recorded.params.shares_path={tmp_path / 'shares.json'}"]
    done = CliRunner().invoke(cli, [*arguments, "--out", str(tmp_path)], prog_name="simsched")
    assert done.exit_code == 2
    assert message in done.output.replace("\n", " ")
