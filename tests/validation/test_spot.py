"""Published costs of spot policies, row by row, and the command that compares them."""

import numpy as np
import pandas as pd
import pytest

from simsched.bounds import least_cost
from tests.campaigns import played
from tests.validation.spot import POLICIES, main, market, replay


@pytest.mark.parametrize("name", played(["deadline_sensitivity.csv", "v100.csv"], ["v100.csv"]))
def test_every_published_cost_comes_out(shared, name, capsys):
    assert main([str(shared / "spot" / name), "--data", str(shared / "spot")]) == 0, capsys.readouterr().out


def test_a_row_that_differs_and_a_file_without_rows_are_told(shared, tmp_path, capsys):
    lines = (shared / "spot" / "v100.csv").read_text().splitlines(keepends=True)
    row = next(line for line in lines if line.startswith("up_s,"))
    wrong = tmp_path / "wrong.csv"
    wrong.write_text(lines[0] + row.replace("44.529464", "44.529564"))
    assert main([str(wrong), "--data", str(shared / "spot")]) == 1
    assert "0 of 1 equal" in capsys.readouterr().out
    wrong.write_text(lines[0])
    assert main([str(wrong), "--data", str(shared / "spot")]) == 1


@pytest.mark.parametrize(
    ("zones", "checkpoint_gb"),
    [
        (["asia-southeast1-c"], 50), (["us-east4-b", "us-east5-a"], 50), (["europe-west3-c", "asia-south2-b"], 4000),
    ],
)  # fmt: skip
def test_other_sweeps_are_read_and_no_cost_is_below_the_bound(shared, tmp_path, zones, checkpoint_gb, capsys):
    policies = [("up", zone) for zone in zones] + [(name, "") for name in (*POLICIES, "up_best") if name != "up"]
    rows = [
        {"policy": policy, "zones": " ".join(zones), "zone": zone, "gap_s": 600, "window": 2, "start_tick": 622,
         "ratio": 1.2, "duration_h": 311 / 6 / 1.2, "deadline_h": 311 / 6, "restart_h": 0.2,
         "checkpoint_gb": checkpoint_gb, "migrations": "", "cost": 0} for policy, zone in policies
    ]  # fmt: skip
    pd.DataFrame(rows).to_csv(tmp_path / "other.csv", index=False)
    assert main([str(tmp_path / "other.csv"), "--data", str(shared / "spot")]) == 1
    assert f"{len(rows)} rows, 0 left out" in capsys.readouterr().out
    replayed = replay(tmp_path / "other.csv", shared / "spot")
    offered = market(shared / "spot", tuple(zones), 622, 311, 600)
    free = [[one.available is None or one.available.at(600 * tick) for tick in range(311)] for one in offered.groups]
    prices = np.where(free, [[one.prices.at(0) / 3600] for one in offered.groups], np.inf)
    bound = least_cost(311 * 600 / 1.2, 720, 600, prices, last_tick=False)
    assert 0 < bound <= replayed["ours"].min() + 1e-9
    if len(zones) == 1:  # the plan counts a restart as two ticks
        assert replayed.loc[replayed["policy"] == "optimal", "ours"].item() < 1.07 * bound


def test_a_file_without_the_columns_is_refused(shared, tmp_path, capsys):
    (tmp_path / "wrong.csv").write_text("policy,cost\nup,1\n")
    assert main([str(tmp_path / "wrong.csv"), "--data", str(shared / "spot")]) == 2
    assert "wrong.csv: cannot be replayed" in capsys.readouterr().err
