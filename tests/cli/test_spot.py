"""Spot markets in experiments, worked by hand: two zones, ticks of ten minutes, spot at 1 $/h and on demand at 4."""

import json

import pandas as pd
import pytest
import yaml

from simsched.report.figures import draw_figure
from simsched.results import read_run

pytestmark = pytest.mark.usefixtures("in_this_process")

#: A job of 40 minutes with a restart of 5, submitted at second 0, to be done after 90 minutes (nine ticks).
JOBS = "job_id,submit_time,num_gpus,duration\na,0,1,2400\n"
#: Spot in us-a-1a in ticks 0 and 1 and from 5 on, in eu-b-1a from 3 on.
AVAILABLE = "time_s,us-a-1a,eu-b-1a\n" + "".join(
    f"{600 * tick},{int(tick < 2 or tick > 4)},{int(tick > 2)}\n" for tick in range(12)
)
PRICES = "time_s,us-a-1a,eu-b-1a\n" + "".join(f"{600 * tick},{1 + (tick > 5)},0.5\n" for tick in range(12))


GROUP = {
    "nodes": 1, "gpus_per_node": 1, "available": "available.csv",
    "price_per_h": {"spot": "prices.csv", "on_demand": 4},
}  # fmt: skip
ZONES = ("us-a-1a", "eu-b-1a")


@pytest.fixture
def spot(simsched, tmp_path):
    """Run a policy on the market; returns the command's result and the cell's folder."""

    def run(policy, command="run", *, notice=True, bill_s=None, **texts):
        for name, text in {"jobs": JOBS, "available": AVAILABLE, "prices": PRICES, **texts}.items():
            (tmp_path / f"{name}.csv").write_text(text)
        content = {
            "name": "spot",
            "cluster": {"groups": [GROUP | {"zone": zone, "notice": notice} for zone in ZONES], "bill_s": bill_s},
            "workload": {"path": "jobs.csv", "recipe": "replay", "deadline_factor": 2.25}, "policies": [policy],
            "engine": {"restart_delay_s": 300}, "report": {"plots": False},
        }  # fmt: skip
        (tmp_path / "spot.yaml").write_text(yaml.safe_dump(content))
        more = [] if command == "validate" else ["--out", str(tmp_path / "out"), "--in-process"]
        done = simsched(command, str(tmp_path / "spot.yaml"), *more)
        return done, next((tmp_path / "out/spot").rglob("summary.json"), tmp_path).parent

    return run


@pytest.mark.parametrize(
    ("policy", "jct_s", "dollars"),
    [
        # 45 minutes on demand
        ("on-demand-only", 2700, 0.75 * 4),
        # spot in the first zone until second 1200; behind at 2400, and on demand from there on, as it is never ahead
        ("uniform-progress", 4200, 1200 / 3600 * 1 + 1800 / 3600 * 4),
        # spot in the first zone until it is lost, then in the other from second 1800
        ("uniform-progress-s", 3600, 1200 / 3600 * 1 + 1800 / 3600 * 0.5),
        ("spot-until-last", 3600, 1200 / 3600 * 1 + 1800 / 3600 * 0.5),
        # only the second zone: a transfer would cost a dollar
        ("spot-optimum", 4500, 2700 / 3600 * 0.5),
    ],
)
def test_what_a_job_holds_and_pays_is_as_worked_by_hand(spot, policy, jct_s, dollars):
    done, cell = spot(policy)
    assert done.exit_code == 0, done.output
    found = json.loads((cell / "summary.json").read_text())
    assert (found["jct_mean_s"], found["gpu_cost"]) == (jct_s, pytest.approx(dollars))
    outages = pd.read_parquet(cell / "outages.parquet")
    assert set(outages["kind"]) == {"reclaimed"}
    assert outages.loc[outages["node"] == 0, "start_s"].tolist() == [1200]


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        ({"available": "time_s,us-a-1a\n0,1\n600,1\n"}, "has no column for the zone 'eu-b-1a'"),
        ({"available": AVAILABLE.replace("1200,0", "1300,0")}, "available.csv:4: 'time_s' goes from 600 to 1300"),
        ({"available": AVAILABLE.replace("1200,0", "300,0")}, "available.csv:4: 'time_s' goes from 600 to 300"),
        ({"available": AVAILABLE.replace("1200,0", "1200,2")}, "available.csv:4: column 'us-a-1a' is '2'"),
        ({"prices": PRICES.replace("1200,1", "1200,-1")}, "prices.csv:4: column 'us-a-1a' is '-1'"),
        ({"prices": PRICES[: PRICES.index("4200,")]}, "prices.csv:8: the series ends at second 4200, before the work"),
        ({"prices": PRICES.replace("0,1,", "0.5,1,", 1)}, "prices.csv:2: the first 'time_s' is 0.5"),
        ({"available": "time_s,us-a-1a,eu-b-1a\n0,1,1\n600.5,1,1\n1201,1,1\n"}, "available.csv:3: second 600.5 is no"),
    ],
)
def test_a_wrong_series_is_refused_with_file_and_line(spot, texts, told):
    done, _ = spot("uniform-progress-s", "validate", **texts)
    assert done.exit_code == 2, done.output
    assert told in done.stderr


def test_a_zone_that_the_market_lacks_is_named(spot):
    done, _ = spot({"name": "uniform-progress", "params": {"zone": "us-a-1b"}})
    assert done.exit_code != 0
    assert "the market has no zone 'us-a-1b'; did you mean 'us-a-1a'?" in done.stderr


def test_the_least_cost_and_what_the_job_held_in_each_zone(spot, simsched, tmp_path):
    done, _ = spot("uniform-progress-s")
    assert done.exit_code == 0, done.output
    # 45 minutes on spot nodes of the second zone, less half a tick of a second, as completions are rounded to ticks
    least = (2700 - 0.5) / 3600 * 0.5
    paid = 1200 / 3600 * 1 + 1800 / 3600 * 0.5
    told = json.loads(simsched("bound", str(tmp_path / "out/spot"), "--json").stdout)
    assert told["bounds"][0]["gpu_cost"] == pytest.approx(least, abs=1e-9)
    assert told["distances"][0]["gpu_cost"] == pytest.approx(paid / least - 1)
    file = tmp_path / "bounds.json"
    assert "GPU cost" in simsched("bound", str(tmp_path / "spot.yaml"), "--out", str(file)).stdout
    assert simsched("bound", "--check", str(file)).exit_code == 0
    file.write_text(file.read_text().replace('"gpu_cost": 0.37', '"gpu_cost": 0.38'))
    assert "its least cost is 0.37" in simsched("bound", "--check", str(file)).stdout

    figure, data = draw_figure(read_run(tmp_path / "out/spot"), "zones")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["uniform-progress-s †", ""]
    held = (
        data[data["policy"] != ""]
        .groupby(["zone", "what"])[["start_s", "end_s"]]
        .agg({"start_s": "min", "end_s": "max"})
    )
    assert held.to_dict("index") == {
        ("us-a-1a", "spot"): {"start_s": 0, "end_s": 1200}, ("eu-b-1a", "spot"): {"start_s": 1800, "end_s": 3600},
    }  # fmt: skip
    free = data[(data["what"] == "available") & (data["zone"] == "us-a-1a")]
    assert free[["start_s", "end_s"]].to_numpy().tolist() == [[0, 1200], [3000, 3600]]
    price = data[(data["what"] == "spot price") & (data["zone"] == "us-a-1a")]
    assert price["value"].tolist() == [1] * 6 + [2] * 6


def test_without_notice_a_job_begins_again_where_the_market_takes_its_node(spot):
    done, cell = spot("spot-until-last", notice=False)
    assert done.exit_code == 0, done.output
    # from second 1800 on all of its 40 minutes after another restart
    assert json.loads((cell / "summary.json").read_text())["jct_mean_s"] == 1800 + 300 + 2400


@pytest.mark.parametrize(
    ("policy", "dollars"),
    # a stay of 45 minutes; 20 minutes at 1 and 30 at 0.5 dollars
    [("on-demand-only", 4), ("uniform-progress-s", 1 + 0.5)],
)
def test_begun_hours_are_paid_in_whole_where_the_experiment_says_so(spot, policy, dollars):
    done, cell = spot(policy, bill_s=3600)
    assert done.exit_code == 0, done.output
    assert json.loads((cell / "summary.json").read_text())["gpu_cost"] == pytest.approx(dollars)
