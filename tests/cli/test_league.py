"""`simsched league`: who takes part where, one's own policy beside results of others, and what is refused."""

from __future__ import annotations

import csv
import json

import pytest

from simsched.documents import yaml_lines
from simsched.experiment import contests, entrants, read_league
from simsched.experiment.league import find_league
from simsched.experiment.validation import check_experiment
from simsched.policy import registry

LEAGUE = """\
format: simsched-league/1
name: small
seeds: 3
usual:
  cluster: {nodes: 2, gpus_per_node: 4, gpu_type: t4, power: {}}
  workload: {offered_load: 0.8}
  finish_time_fairness: {definition: shockwave-themis}
workloads:
  drawn:
    about: twelve jobs
    workload: {recipe: log-normal, jobs: 12, median_s: 200, mean_s: 900, mean_gpus: 2, widest: 8}
  gone:
    about: a trace that is not at hand
    data: gone.csv
    workload: {recipe: replay}
conditions:
  load-0.8: {}
  load-1.1: {workload.offered_load: 1.1}
"""
MINE = """
from simsched.policy import Decision, Policy
from simsched.toolkit.gang import run_in_order


class Mine(Policy):
    name = "mine"

    def decide(self, view, rng):
        return Decision(run_in_order(list(view.jobs.values()), view))
"""
THREE = ("--policy", "fifo", "--policy", "srtf", "--policy", "pollux")


@pytest.fixture
def league(folder, simsched):
    """Return a function that plays the small league, and its results."""
    (folder / "small.yaml").write_text(LEAGUE)
    (folder / "mine.py").write_text(MINE)

    def play(*options, code=0):
        done = simsched("league", "small.yaml", "-j", "1", *options)
        assert done.exit_code == code, done.output
        return done

    return play


def test_every_policy_takes_part_where_it_can(folder, league):
    done = league(*THREE)
    results = folder / "results" / "small"
    table = json.loads((results / "league.json").read_text())
    ran = {(one["contest"], one["policy"]) for one in table["entries"] if not one["reason"]}
    assert ran == {(f"drawn.load-{load}", policy) for load in ("0.8", "1.1") for policy in ("fifo", "srtf")}
    reasons = {one["policy"]: one["reason"] for one in table["entries"] if one["reason"]}
    assert list(reasons) == ["pollux"]
    assert "no model of batch sizes to adapt" in reasons["pollux"]
    assert [place["offered_load"] for place in table["contests"][:2]] == pytest.approx([0.8, 1.1], rel=0.02)
    assert "gone was not run: gone.csv is not at hand" in done.stdout
    page = (results / "league.html").read_text()
    assert "no model of batch sizes to adapt" in page
    assert "srtf †" in page
    assert "(tests/validation/test_queue_oracles.py)" in page
    with (results / "league.csv").open() as file:
        rows = list(csv.DictReader(file))
    above = {row["policy"]: float(row["above_bound"]) for row in rows if row["metric"] == "jct_mean_s"}
    assert 0 <= above["srtf"] <= above["fifo"]
    assert {"rho_max", "idle_gpu_hours", "energy_kwh", "cpu_s"} <= {row["metric"] for row in rows}
    assert "[1/" not in league(*THREE).stderr, "what is complete is not run again"


def test_ones_own_policy_stands_beside_results_of_others(folder, league):
    league("--policy", "fifo", "--policy", "las", "--out", "theirs")
    league("--policy", "mine.py:Mine", "--against", "theirs/small", "--out", "own")
    cells = list((folder / "own" / "small").glob("*/cells/*"))
    assert len(cells) == 2 * 3, "only the new one is run: two contests, three seeds"
    table = json.loads((folder / "own" / "small" / "league.json").read_text())
    assert {one["policy"] for one in table["entries"]} == {"fifo", "las", "mine"}
    assert all(place["bounds"] for place in table["contests"][:2])
    values = {
        one["policy"]: one["values"]["jct_mean_s"] for one in table["entries"] if one["contest"] == "drawn.load-0.8"
    }
    assert values["mine"] == values["fifo"], "it serves in order of arrival"
    page = (folder / "own" / "small" / "league.html").read_text()
    assert "non-clairvoyant, rigid: all contests" not in page, "one workload, one table"
    assert "non-clairvoyant, rigid: drawn" in page


def test_results_of_other_jobs_or_another_league_are_refused(folder, league):
    league("--policy", "fifo", "--out", "theirs")
    path = folder / "theirs" / "small" / "league.json"
    table = json.loads(path.read_text())
    table["entries"][0]["jobs"]["1"] = "0" * 16
    path.write_text(json.dumps(table))
    done = league("--policy", "las", "--against", "theirs/small", "--out", "own", code=2)
    assert "had other jobs at drawn.load-0.8, seed 1" in done.stderr
    same = league("--policy", "fifo", "--against", "theirs/small", "--out", "theirs-too", code=2)
    assert "had other jobs" in same.stderr
    path.write_text(json.dumps(table | {"digest": "0" * 16}))
    assert "another league" in league("--policy", "las", "--against", str(path), code=2).stderr


def test_what_is_no_league_is_refused(folder, league, simsched):
    assert "is not valid JSON" in league("--against", "jobs.csv", code=2).stderr
    assert "holds no league" in league("--against", ".", code=2).stderr
    (folder / "small.yaml").write_text(LEAGUE.replace("seeds: 3", "seeds: 1\nodd: 2"))
    said = league(code=2).stderr
    assert "odd" in said
    assert "seeds" in said
    assert "no shipped league" in simsched("league", "1999").stderr
    (folder / "small.yaml").write_text(LEAGUE)
    assert "declares no division 'smoke'" in league("--smoke", code=2).stderr


@pytest.mark.parametrize("division", ["", "smoke", "half-hour"])
def test_the_shipped_league_is_made_of_experiments(division, tmp_path):
    spec = read_league("2026", division)
    (tmp_path / "philly.csv").write_text("submit_time,num_gpus,duration\n0,1,60\n30,2,90\n")
    (tmp_path / "itp2021").mkdir()
    for number in (1, 2):
        (tmp_path / "itp2021" / f"cluster0{number}.csv").write_text("a")
    found = list(contests(spec, tmp_path))
    names = {one.workload for one in found}
    assert [one.name for one in found if one.missing] == ([] if division else ["llm.three-types"])
    assert division or {"philly-csv", "itp2021-cluster01", "itp2021-cluster02"} <= names
    assert len(found) == {"": 9 * 8, "smoke": 3, "half-hour": 17}[division]
    for one in found:
        points = check_experiment(one.document([{"name": "fifo"}], (1, 2), spec.name)).points
        assert len(points) == 1
        assert points[0].spec.workload.offered_load is not None


def test_every_policy_that_ships_may_take_part():
    spec = read_league("2026")
    able = entrants(spec)
    assert not able.unable
    assert {row["name"] for row in able.rows} == set(registry.names())
    assert find_league("league-2026") == find_league("2026")


def test_a_condition_may_replace_a_section(folder):
    text = LEAGUE + "  wide: {cluster: {nodes: 1, gpus_per_node: 2}, engine.restart_delay_s: 300}\n"
    (folder / "small.yaml").write_text(text)
    wide = next(one for one in contests(read_league("small.yaml")) if one.condition == "wide")
    document = wide.document([{"name": "fifo"}], (1,), "small")
    assert document.data["cluster"] == {"nodes": 1, "gpus_per_node": 2}
    assert document.data["engine"] == {"restart_delay_s": 300}
    assert isinstance(document, yaml_lines.Document)
