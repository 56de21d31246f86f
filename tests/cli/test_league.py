"""`simsched league` and `score`: who takes part where, own policies beside others' results, submissions, refusals."""

from __future__ import annotations

import hashlib
import re

import pytest

from simsched.errors import InputError
from simsched.experiment.league import (
    code_now,
    find_league,
    lists_file,
    read_league,
    read_lists,
    shipped_results,
    write_lists,
)
from simsched.operators.league import made_by_other_code, make_lists
from simsched.operators.score import score
from simsched.policy import registry
from simsched.results.league import ContestPlace, Entry, LeagueTable, joined, read_league_table, standings

LEAGUE = """\
format: simsched-league/2
name: small
jobs: 40
wait: 0.3
usual:
  cluster: {nodes: 2, gpus_per_node: 4, gpu_type: t4}
contests:
  drawn:
    about: forty jobs
    good: let short jobs pass
    workload: {recipe: log-normal, jobs: 40, median_s: 200, mean_s: 900, mean_gpus: 2, widest: 8, offered_load: 0.9}
divisions:
  closed: {about: All., seeds: 2, contests: [drawn], policies: [fifo, srtf, pollux], left_out: {sia: it is slow}}
"""
MINE = """
from simsched.policy import Decision, Policy
from simsched.toolkit.gang import run_in_order


class Mine(Policy):
    name = "mine"

    def decide(self, view, rng):
        return Decision(run_in_order(list(view.jobs.values()), view))


class Idle(Mine):
    name = "idle"

    def decide(self, view, rng):
        return Decision({})
"""


@pytest.fixture
def league(folder, simsched):
    """Return a function that plays the small league, and its results."""
    (folder / "small.yaml").write_text(LEAGUE)
    (folder / "mine.py").write_text(MINE)

    def play(*options, code=0):
        done = simsched("league", *([] if "--verify" in options else ["small.yaml"]), "-j", "1", *options)
        assert done.exit_code == code, done.output
        return done

    return play


def test_every_policy_takes_part_where_it_can_and_ones_own_stands_beside_them(folder, league):
    done = league()
    results = folder / "results" / "small-closed"
    table = read_league_table(results)
    assert {one.policy for one in table.ran()} == {"fifo", "srtf"}
    (unable,) = [one for one in table.entries if one.reason]
    assert (unable.policy, "no model of batch sizes to adapt" in unable.reason) == ("pollux", True)
    assert "Not in this division: sia (it is slow)." in done.stdout
    page = (results / "league.html").read_text()
    for said in ("no model of batch sizes to adapt", "srtf †", "let short jobs pass", "No ranks, as no two rows are"):
        assert said in page
    (place,) = table.contests
    for seed, bound_s in place.bounds.items():
        assert 0 < bound_s <= min(one.values["jct_mean_s"][seed] for one in table.ran())
    (first,) = [one for one in table.ran() if one.policy == "fifo"]
    for seed, wait_s in first.values["wait_mean_s"].items():
        assert 0.2 <= wait_s / first.values["jct_mean_s"][seed] <= 0.66
    assert "[1/" not in league().stderr, "what is complete is not run again"

    stored = results / "league.json"
    again = league("--policy", "mine.py:Mine", "--against", str(stored), "--out", "own")
    both = read_league_table(folder / "own" / "small-closed")
    assert both.policies == ("fifo", "srtf", "pollux", "mine")
    values = {one.policy: one.values["jct_mean_s"] for one in both.ran()}
    assert values["mine"].keys() == values["fifo"].keys()
    assert len(list((folder / "own" / "small").glob("cells/*"))) == 2, "only the new one is run"
    assert "cannot run everywhere" in again.stdout
    done = league("--policy", "mine.py:Idle", "--against", str(stored), "--out", "own", code=1)
    assert "idle at drawn: policy 'idle' at t=" in done.stderr

    stored.write_text(re.sub(r'"code": "\w+"', '"code": "0"', stored.read_text()))
    done = league("--policy", "mine.py:Mine", "--against", str(stored), "--out", "own")
    assert "Other code than this version's made the rows of fifo, srtf; fifo came out the same again." in done.stdout


def test_a_submission_is_reproduced_to_the_byte(folder, league):
    digest = hashlib.sha256(MINE.encode()).hexdigest()
    entry = folder / "mine.yaml"
    text = "format: simsched-league-entry/1\nleague: small.yaml\ndivision: closed\npolicy: mine.py:Mine\nseeds: 2\n"
    entry.write_text(f"{text}sha256: {digest}\n")
    assert "its digest is written down" in league("--verify", "mine.yaml").stdout
    assert "as submitted" in league("--verify", "mine.yaml").stdout
    entry.write_text(re.sub("cells: .", "cells: x", entry.read_text()))
    assert "not as submitted" in league("--verify", "mine.yaml", code=1).stdout
    entry.write_text(f"{text}sha256: {digest}\nparams: {{a: 1}}\n")
    assert "only the division 'open'" in league("--verify", "mine.yaml", code=2).stderr
    (folder / "mine.py").write_text(MINE + "\n")
    assert "a changed policy is another entry" in league("--verify", "mine.yaml", code=2).stderr


def test_lists_are_frozen_with_a_digest_and_seeds_of_ones_own_are_drawn(folder, league):
    spec, _ = read_league(str(folder / "small.yaml"), "closed")
    drawn = make_lists(spec, "drawn", (1, 2))
    place = str(folder / "small.yaml")
    lists_file(place, "drawn").parent.mkdir()
    digest = write_lists(place, "drawn", drawn)
    assert read_lists(place, "drawn", digest) == drawn
    with pytest.raises(InputError, match="restore the file that came with the league"):
        read_lists(place, "drawn", "0" * 64)
    (folder / "small.yaml").write_text(LEAGUE.replace("good:", f"lists: {digest}\n    good:"))
    (folder / "own.json").write_text("[7, 8]")
    league("--seeds", "own.json")
    assert read_league_table(folder / "results" / "small-closed").seeds == (7, 8)
    for text in ("[7, 7]", "[]", "{}", "[1.5]"):
        (folder / "own.json").write_text(text)
        assert "is no list of different seeds" in league("--seeds", "own.json", code=2).stderr


def test_a_policy_is_scored_and_told_if_it_overfits(folder, league):
    best = score("srtf", league="small.yaml", seeds=(1, 2), unseen=(3, 4), out=folder / "s")
    assert 0 < best["score"] <= 1
    assert best["score"] == pytest.approx(sum(best["by_seed"].values()) / 2)
    assert best["interval"][0] < best["score"] < best["interval"][1]
    assert "seen seeds" in best["overfits"][0]
    assert best["lost_most"][0].startswith("drawn, seed ")
    with pytest.raises(InputError, match="as many seeds are needed as are seen"):
        score("srtf", league="small.yaml", seeds=(1, 2), unseen=(2, 3), out=folder / "s")


def one_entry(policy="fifo", policy_name="fifo", *, jct_s=5.0, jobs="a", digest="d", code="c"):
    """Return a league of one contest, one policy and one seed."""
    values = {"jct_mean_s": {"1": jct_s}}
    entry = Entry("w", policy, policy_name, code=code, jobs={"1": jobs}, values=values)
    return LeagueTable("small", "closed", digest, "", (1,), (ContestPlace("w"),), (entry,))


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (one_entry("las", "las", jobs="b"), "had other jobs at w, seed 1"),
        (one_entry("las", "las", digest="e"), "another league"),
        (one_entry(jct_s=5.5), "has another jct_mean_s of 'fifo' at w, seed 1, than this version gives"),
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


def test_rows_that_other_code_made_are_named():
    assert made_by_other_code(one_entry(code=code_now("fifo"))) == []
    assert made_by_other_code(one_entry("first come", code="0" * 16)) == ["first come"]
    assert made_by_other_code(one_entry("mine", "mine.py:Mine")) == []


def test_what_is_no_league_is_refused(folder, league, simsched):
    assert "is not valid JSON" in league("--against", "jobs.csv", code=2).stderr
    assert "holds no league" in league("--against", ".", code=2).stderr
    assert "does not declare a division 'smoke'" in league("--smoke", code=2).stderr
    (folder / "small.yaml").write_text(LEAGUE.replace("jobs: 40\n", "jobs: 4\nodd: 2\n", 1))
    said = league(code=2).stderr
    assert "odd" in said
    assert "jobs" in said
    assert "no shipped league" in simsched("league", "1999").stderr


def test_the_shipped_league_is_whole():
    assert find_league("league-2026") == find_league("2026")
    spec, closed = read_league("2026", "closed")
    assert (spec.jobs >= 2000, spec.wait, spec.between[0]) == (True, 0.45, 0.2)
    taken = {row.name for row in closed.policies} | closed.left_out.keys()
    assert taken <= set(registry.names())
    for name in closed.contests:
        lists = read_lists("2026", name, spec.contests[name].lists)
        assert set(lists) >= set(range(1, closed.seeds + 1))
        assert {len(jobs) for jobs in lists.values()} == {spec.jobs}


def test_shipped_results_are_of_the_league_as_declared_and_separate():
    spec, closed = read_league("2026", "closed")
    path = shipped_results(spec, "closed")
    assert path is not None
    table = read_league_table(path)
    assert table.digest == spec.digest(closed.contests)
    (first,) = [one for one in table.ran(closed.contests[0]) if one.policy == "fifo"]
    assert set(first.jobs) == {str(seed) for seed in table.seeds}
    for place in table.contests:
        (fifo,) = [one for one in table.ran(place.name) if one.policy == "fifo"]
        shares = [wait_s / fifo.values["jct_mean_s"][seed] for seed, wait_s in fifo.values["wait_mean_s"].items()]
        assert min(shares) >= 0.2
        assert max(shares) <= 0.66
        found = [standings(table, (place.name,), oracles=oracles) for oracles in (False, True)]
        pairs = sum(len(one.rows) * (len(one.rows) - 1) // 2 for one in found)
        assert sum(len(one.apart) for one in found) >= pairs / 2, f"{place.name} separates too few"
