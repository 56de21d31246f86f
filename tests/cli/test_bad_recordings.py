"""Recordings that are not those of the jobs at hand: refused with file and line before the first cell runs."""

import gzip
import json
import shutil
from pathlib import Path

import pytest

from simsched.applications.catalogue import ApplicationsOptions, catalogue
from simsched.engine.providers import views_at_submission
from simsched.model.cluster import Cluster
from simsched.policy import registry
from simsched.toolkit.grouping.matching import exact_matching
from simsched.toolkit.recording import Recording, play
from simsched.workload.readers.artifact_lists import MURI

pytestmark = pytest.mark.usefixtures("in_this_process")

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "tests" / "data" / "muri-small.csv"
SHOCKWAVE = ROOT / "tests" / "data" / "shockwave"


@pytest.fixture(scope="module")
def matchings():
    """Make the matchings of the small trace."""
    made = []

    def match(weights):
        made.append([list(pair) for pair in exact_matching(weights)])
        return made[-1]

    cluster = Cluster.uniform(8, 8, "v100")
    muri = registry.load("muri/__init__.py:Muri", folder=ROOT / "tests" / "validation" / "replays")()
    views = views_at_submission(MURI.read(TRACE), cluster, catalogue(ApplicationsOptions()), muri.signals)
    muri.begin(cluster)
    muri._match = match
    play(muri, views, cluster)
    return made


def lines(entries, key):
    """Write a recording with an entry on every line, the first on the second line."""
    return f'{{"{key}": [\n' + ",\n".join(map(json.dumps, entries)) + "\n]}\n"


def refused(done, said):
    assert done.exit_code == 2, done.output
    assert said in done.stderr
    assert "Traceback" not in done.output
    assert not Path("results").exists()


def muri(simsched, command, recording, trace=TRACE):
    change = f"policies.Muri-S.params.matchings={recording}"
    return simsched(command, "validation/muri-recorded", "-o", f"workload.path={trace}", "-o", change)


def test_the_matchings_of_the_trace_are_accepted(simsched, folder, matchings):
    (folder / "made.json").write_text(lines(matchings, "matchings"))
    (folder / "made.json.gz").write_bytes(gzip.compress((folder / "made.json").read_bytes()))
    assert Recording(folder / "made.json.gz", "matchings").entries == matchings
    assert muri(simsched, "validate", "made.json").exit_code == 0


MATCHINGS = {
    "one is left out": (lambda made: made[:-1], "there are no more"),
    "one is left over": (lambda made: [*made, [[0, 1]]], "is not asked for: these jobs take"),
    "a group that there is not": (lambda made: [[[0, 99]], *made[1:]], "bad.json:2: matchings[0] is no matching of"),
    "a group twice": (lambda made: [[[0, 1], [1, 2]], *made[1:]], "bad.json:2: matchings[0] is no matching of"),
    "nobody is matched": (lambda made: [made[0], [], *made[2:]], "bad.json:3: matchings[1] weighs 0,"),
    "no pairs": (lambda made: [7, *made[1:]], "bad.json:2: matchings[0] is no matching of"),
}


@pytest.mark.parametrize("case", MATCHINGS)
def test_other_matchings_are_refused(simsched, folder, matchings, case):
    change, said = MATCHINGS[case]
    (folder / "bad.json").write_text(lines(change(matchings), "matchings"))
    done = muri(simsched, "validate", "bad.json")
    refused(done, said)
    assert "bad.json:" in done.stderr


def test_the_matchings_of_another_trace_are_refused(simsched, folder, matchings):
    (folder / "made.json").write_text(lines(matchings, "matchings"))
    head, *rows = TRACE.read_text().splitlines()
    (folder / "part.csv").write_text("\n".join([head, *rows[: len(rows) // 2]]) + "\n")
    refused(muri(simsched, "run", "made.json", "part.csv"), "made.json:")


def _cut(path: Path) -> None:
    path.with_suffix(".json.gz").write_bytes(gzip.compress(path.read_bytes())[:-20])


FILES = {
    "empty": (lambda path: path.write_text(""), "bad.json", "bad.json:1: is not JSON"),
    "cut short": (lambda path: path.write_text(path.read_text()[:-4]), "bad.json", "cut short or damaged"),
    "cut short when packed": (_cut, "bad.json.gz", "the compressed file is cut short"),
    "no text": (lambda path: path.write_bytes(b"\xff\x00"), "bad.json", "is not UTF-8 text"),
    "another list": (
        lambda path: path.write_text('{"pairs": []}'),
        "bad.json",
        "bad.json:1: the recording has no list",
    ),
    "a list": (lambda path: path.write_text("[1]"), "bad.json", "bad.json:1: the recording has no list"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), "bad.json", "is a folder"),
    "nothing there": (lambda path: path.unlink(), "bad.json", "o such file"),
}


@pytest.mark.parametrize("case", FILES)
def test_files_that_are_no_recordings_are_refused(simsched, folder, matchings, case):
    spoil, name, said = FILES[case]
    (folder / "bad.json").write_text(lines(matchings, "matchings"))
    spoil(folder / "bad.json")
    refused(muri(simsched, "validate", name), said)


def shockwave(simsched, command, recording, trace=SHOCKWAVE / "synthetic.trace", rates=SHOCKWAVE / "rates.json"):
    changes = {
        "workload.path": trace,
        "applications.path": rates,
        "policies.recorded.params.shares_path": recording,
        "cluster.nodes": 1,
    }
    overrides = [part for key, value in changes.items() for part in ("-o", f"{key}={value}")]
    return simsched(command, "validation/shockwave", *overrides)


def _without(entries, number, job):
    del entries[number]["x"][job]


SHARES = {
    "the last solution is left out": (lambda entries: entries.pop(), "and there are no more"),
    "the last two are left out": (lambda entries: entries.__delitem__(slice(-2, None)), "none has shares for job '7'"),
    "a solution twice": (lambda entries: entries.append(entries[-1]), "is not asked for: these jobs take"),
    "made at another time": (
        lambda entries: entries[0].update(t=entries[0]["t"] + 0.5),
        "bad.json:2: allocations[0] was made at",
    ),
    "an unknown job": (
        lambda entries: entries[1]["x"].update({"99": 0.5}),
        "bad.json:3: allocations[1] has shares for job '99', which the workload does not have by then",
    ),
    "a job is left out": (
        lambda entries: _without(entries, 0, "0"),
        "bad.json:2: allocations[0] has no shares for job '0', which waits then",
    ),
    "a share that is not a number": (
        lambda entries: entries[0]["x"].update({"0": "all"}),
        "bad.json:2: allocations[0] has no shares 'x' by job",
    ),
    "a share that is not finite": (
        lambda entries: entries[0]["x"].update({"0": float("nan")}),
        "bad.json: holds NaN",
    ),
    "a time that is not a number": (
        lambda entries: entries[0].update(t="now"),
        "bad.json:2: allocations[0] has a time 't' that is not a number",
    ),
    "another type of GPU": (
        lambda entries: entries[0]["x"].update({"0": {"k80": 1.0}}),
        "bad.json:2: allocations[0] has shares on GPUs of the type 'k80', which the cluster does not have",
    ),
}


@pytest.fixture
def entries():
    """Read the solutions of the recording made by hand."""
    return Recording(SHOCKWAVE / "recording.json", "allocations").entries


@pytest.mark.parametrize("case", SHARES)
def test_other_shares_are_refused(simsched, folder, entries, case):
    spoil, said = SHARES[case]
    spoil(entries)
    (folder / "bad.json").write_text(lines(entries, "allocations"))
    refused(shockwave(simsched, "validate", "bad.json"), said)


def test_shares_of_another_trace_or_other_rates_are_refused(simsched, folder, entries):
    (folder / "made.json").write_text(lines(entries, "allocations"))
    shutil.copytree(SHOCKWAVE, folder / "data")
    trace, rates = folder / "data" / "synthetic.trace", folder / "data" / "rates.json"
    assert shockwave(simsched, "validate", "made.json", trace, rates).exit_code == 0
    faster = folder / "data" / "faster.json"
    faster.write_text(json.dumps(_faster(json.loads(rates.read_text()))))
    refused(shockwave(simsched, "run", "made.json", trace, faster), "made.json:3: allocations[1] was made at")
    rows = (SHOCKWAVE / "synthetic.trace").read_text().splitlines()
    trace.write_text("\n".join(rows[:-1]) + "\n")
    refused(shockwave(simsched, "run", "made.json", trace, rates), "which the workload does not have")


def _faster(rates):
    if isinstance(rates, dict):
        return {key: _faster(value) for key, value in rates.items()}
    return rates * 1.1 if isinstance(rates, float) else rates


def test_shares_of_a_policy_that_ships_are_held_against_the_jobs(simsched, folder):
    """Its last solution stays, so that one is enough; every job must be in it, and no other."""
    (folder / "tiny.yaml").write_text(
        "name: tiny\nworkload: {path: jobs.csv, recipe: replay}\ncluster: {nodes: 2, gpus_per_node: 4}\n"
        "policies: [{name: recorded, params: {shares_path: shares.json}}]\nreport: {plots: false}\n"
    )
    names = [f"job-{number}" for number in range(12)]
    for jobs, said in ((names, ""), (names[:-1], "none has shares for job 'job-11'"), ([*names, "x"], "for job 'x'")):
        (folder / "shares.json").write_text(json.dumps({"allocations": [{"x": dict.fromkeys(jobs, 0.5)}]}))
        if said:
            refused(simsched("run", "tiny.yaml"), "shares.json:1: allocations[0] ")
            refused(simsched("run", "tiny.yaml"), said)
        else:
            assert simsched("validate", "tiny.yaml").exit_code == 0


def test_a_job_of_a_trace_of_muri_that_never_fits_is_blamed_on_its_line(simsched, folder):
    head, first, *rest = TRACE.read_text().splitlines()
    cells = first.split(",")
    cells[1] = "128"
    (folder / "big.csv").write_text("\n".join([head, *rest, ",".join(cells)]) + "\n")
    done = simsched("validate", "validation/muri", "-o", "workload.path=big.csv")
    refused(done, f"big.csv:{len(rest) + 2}: workload, job '0': it asks for 128 GPUs")
