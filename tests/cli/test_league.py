"""`simsched league`: who takes part where, one's own policy beside results of others, and what is refused."""

from __future__ import annotations

import csv
import gzip
import json
import re

import pytest

from simsched.documents import yaml_lines
from simsched.errors import InputError
from simsched.experiment.league import (
    code_now,
    contests,
    digest_of_league,
    entrants,
    find_league,
    read_league,
    shipped_results,
)
from simsched.experiment.running import prepare_grid
from simsched.experiment.validation import check_experiment
from simsched.operators import bounds_of, grid_of
from simsched.operators.league import made_by_other_code, tune
from simsched.policy import registry
from simsched.report.league import contests_table
from simsched.results import read_run
from simsched.results.league import ContestPlace, Entry, LeagueTable, joined, read_league_table

LEAGUE = """\
format: simsched-league/1
name: small
seeds: 2
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
    assert "gone was not run: gone.csv is not available" in done.stdout
    page = (results / "league.html").read_text()
    assert "no model of batch sizes to adapt" in page
    assert "srtf †" in page
    assert "(tests/validation/test_queue_oracles.py)" in page
    with (results / "league.csv").open() as file:
        rows = list(csv.DictReader(file))
    above = {row["policy"]: float(row["above_bound"]) for row in rows if row["metric"] == "jct_mean_s"}
    assert 0 <= above["srtf"] <= above["fifo"]
    assert {"rho_max", "idle_gpu_hours", "energy_kwh", "cpu_s"} <= {row["metric"] for row in rows}
    kept = {path: path.stat().st_mtime_ns for path in results.glob("*/cells/*/bound.json")}
    assert len(kept) == 2 * 2, "two contests, two seeds, whatever the number of policies"
    run = read_run(results / "drawn.load-0.8")
    here = {f"{one.seed}": one.mean_jct_s for one in bounds_of(grid_of(run))}
    assert table["contests"][0]["bounds"] == here, "workers find what a search in this process finds"
    assert "[1/" not in league(*THREE).stderr, "what is complete is not run again"
    assert all(path.stat().st_mtime_ns == then for path, then in kept.items())


def test_ones_own_policy_stands_beside_results_of_others(folder, league):
    league("--policy", "fifo", "--policy", "las", "--out", "theirs")
    path = folder / "theirs" / "small" / "league.json"
    of_other_code = re.sub(r'"code": "\w+"', '"code": "0"', path.read_text())
    path.with_suffix(".json.gz").write_bytes(gzip.compress(of_other_code.encode()))
    done = league("--policy", "mine.py:Mine", "--against", f"{path}.gz", "--out", "own")
    assert "made the rows of fifo, las; fifo was run again and came out the same." in done.stdout
    cells = list((folder / "own" / "small").glob("*/cells/*"))
    assert len(cells) == 2 * 2 * 2, "only the new one and fifo are run: two contests, two seeds"
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


def test_ones_own_policy_that_fails_is_told(folder, league):
    league("--policy", "fifo", "--out", "one", "--no-bounds")
    text = "from simsched.policy import Decision, Policy\nclass Idle(Policy):\n    name = 'idle'\n"
    (folder / "idle.py").write_text(text + "    def decide(self, view, rng):\n        return Decision({})\n")
    path = folder / "one" / "small" / "league.json"
    done = league("--policy", "idle.py:Idle", "--against", str(path), "--out", "none", "--no-bounds", code=1)
    assert "idle at drawn.load-0.8: policy 'idle' at t=" in done.stderr


def one_entry(policy="fifo", policy_name="fifo", *, jct_s=5.0, jobs="a", digest="d", code="c"):
    """Return a league of one contest, one policy and one seed."""
    values = {"jct_mean_s": {"1": jct_s}, "cpu_s": {"1": jct_s / 7}}
    entry = Entry("w.c", policy, policy_name, code=code, jobs={"1": jobs}, values=values)
    return LeagueTable("small", digest, "", (1,), (ContestPlace("w", "c"),), (entry,))


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (one_entry("las", "las", jobs="b"), "had other jobs at w.c, seed 1"),
        (one_entry("las", "las", digest="e"), "another league"),
        (one_entry(jct_s=5.5), "has another jct_mean_s of 'fifo' at w.c, seed 1, than this version gives"),
        (one_entry("fifo", "mine.py:Mine"), "has a policy called 'fifo' too"),
    ],
)
def test_results_of_another_league_or_that_come_out_otherwise_are_refused(own, said):
    with pytest.raises(InputError, match=re.escape(said)):
        joined(own, one_entry())


def test_what_comes_out_the_same_and_ones_own_policy_take_the_place_of_what_was_there():
    again = one_entry(code="newer")
    assert joined(again, one_entry()).entries == again.entries
    mine = one_entry("mine", "mine.py:Mine", jct_s=4.0)
    assert joined(mine, one_entry("mine", "mine.py:Mine")).entries == mine.entries
    assert [one.policy for one in joined(mine, one_entry()).entries] == ["fifo", "mine"]


def test_contests_at_which_policies_cannot_differ_are_named():
    notes = contests_table(joined(one_entry("las", "las"), one_entry())).notes
    assert notes == ("fifo, las: the same times for every seed (at contest=w.c).",)
    assert contests_table(joined(one_entry("las", "las", jct_s=4.0), one_entry())).notes == ()


def test_rows_that_other_code_made_are_named():
    assert made_by_other_code(one_entry(code=code_now("fifo"))) == []
    assert made_by_other_code(one_entry("first come", code="0" * 16)) == ["first come"]
    assert made_by_other_code(one_entry("mine", "mine.py:Mine")) == []


def test_what_is_no_league_is_refused(folder, league, simsched):
    assert "is not valid JSON" in league("--against", "jobs.csv", code=2).stderr
    assert "holds no league" in league("--against", ".", code=2).stderr
    (folder / "small.yaml").write_text(LEAGUE.replace("seeds: 2", "seeds: 1\nodd: 2"))
    said = league(code=2).stderr
    assert "odd" in said
    assert "seeds" in said
    assert "no shipped league" in simsched("league", "1999").stderr
    (folder / "small.yaml").write_text(LEAGUE)
    assert "does not declare a division 'smoke'" in league("--smoke", code=2).stderr


TUNING = """
tuning:
  seeds: [3, 4]
  rows:
    - {name: tiresias, label: tuned, grid: {queue_thresholds_gpu_s: [[100], [100000]], interval_s: [600]}}
    - {name: pollux, label: nowhere, grid: {interval_s: [30, 60]}}
"""


def test_a_row_is_tuned_by_the_least_geometric_mean_on_other_seeds(folder):
    (folder / "small.yaml").write_text(LEAGUE + TUNING)
    spec = read_league("small.yaml")
    tuned = tune(spec, list(contests(spec)), folder / "out", 1, None)
    assert tuned["nowhere"].row is None, "no workload has the batch sizes that pollux needs"
    assert tuned["nowhere"].said == "nowhere: left out, as its candidates ran in no contest."
    row, said = tuned["tuned"].row, tuned["tuned"].said
    means = {}
    for cell in read_run(folder / "out" / "tuning" / "drawn.load-0.8").cells:
        assert cell.seed in (3, 4)
        means[cell.policy] = means.get(cell.policy, 1) * cell.summary["jct_mean_s"]
    best, worst = sorted(means, key=means.get)
    assert json.dumps(row["params"]) == best.removeprefix("tuned ")
    assert f"the worst took {(means[worst] / means[best]) ** 0.5:.2f} times as long" in said
    (folder / "small.yaml").write_text(LEAGUE + TUNING.replace("[3, 4]", "[2, 4]"))
    with pytest.raises(InputError, match="2 is a seed of the league itself"):
        read_league("small.yaml")


@pytest.mark.filterwarnings("ignore:.*outside the range of the profile's fit:UserWarning")  # of the contest llm
@pytest.mark.parametrize("division", ["smoke", "half-hour"])
def test_shipped_results_are_of_the_league_as_it_is_declared(division):
    spec = read_league("2026", division)
    path = shipped_results(spec)
    if path is None:
        pytest.skip(f"no results of {spec.name} ship")
    table = read_league_table(path)
    assert table.digest == digest_of_league(spec)
    found = list(contests(spec))
    assert [one.name for one in table.contests] == [one.name for one in found]
    for one in {contest.workload: contest for contest in found}.values():
        (cell,) = prepare_grid(one.document([{"name": "fifo"}], (1,), spec.name)).cells
        (known,) = {entry.jobs["1"] for entry in table.ran() if entry.contest == one.name}
        assert str(cell.task.about["jobs_hash"]).startswith(known), f"{one.name} has other jobs now"
    assert {"fifo", "srtf", "pollux", "tiresias, tuned"} <= {one.policy for one in table.ran()}
    assert all(set(one.jobs) == {f"{seed}" for seed in table.seeds} for one in table.ran())


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


def test_a_division_has_keys_in_place_of_the_leagues(folder):
    text = (
        LEAGUE
        + "divisions: {few: {about: few, seeds: 2, contests: {drawn: [load-1.1]}, instead: {workload.jobs: 5}}}\n"
    )
    (folder / "small.yaml").write_text(text)
    (one,) = contests(read_league("small.yaml", "few"))
    assert one.name == "drawn.load-1.1"
    assert one.document([{"name": "fifo"}], (1,), "small").data["workload"]["jobs"] == 5
    (folder / "small.yaml").write_text(text.replace("[load-1.1]", "[load-2]"))
    with pytest.raises(InputError, match=r"divisions.few.contests: there is no 'load-2'"):
        read_league("small.yaml", "few")


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
