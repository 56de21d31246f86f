"""The medians that `sharing/pairs` ships, against the table published with Gavel.

The table is not part of the project; without it the comparison is skipped.
"""

import json
import statistics
from collections import defaultdict
from itertools import combinations_with_replacement

import pytest

from simsched.applications.catalogue import read_pair_table
from simsched.applications.rate_table import read_rate_table
from simsched.model.colocation.pairs import gavel_kind, pairs_from_gavel
from simsched.model.tabulated import Setting
from simsched.paths import data_folder
from simsched.workload.gavel import read_gavel_jobs

TYPES = ("k80", "p100", "v100")


@pytest.fixture(scope="module")
def folder():
    return data_folder("experiments") / "sharing"


def test_every_pair_of_families_meets_once(folder):
    table = read_pair_table(folder / "families-pairs.csv")
    names = sorted({kind.application for _, kind, _ in table.pairs})
    assert len(names) == 7
    pairs = set(combinations_with_replacement(names, 2))
    assert {(kind, one.application, other.application) for kind, one, other in table.pairs} == {
        (kind, *pair) for kind in TYPES for pair in pairs
    }
    jobs = read_gavel_jobs(folder / "pairs.trace")
    met = [tuple(job.application for job in jobs[at : at + 2]) for at in range(0, len(jobs), 2)]
    assert sorted(met) == sorted(pairs)
    assert all(jobs[at].submit_time_s == jobs[at + 1].submit_time_s for at in range(0, len(jobs), 2))


def test_shipped_speeds_are_the_medians_of_the_published_table(folder, shared):
    document = json.loads((shared / "gavel" / "simulation_throughputs.json").read_text(encoding="utf-8"))
    published = defaultdict(list)
    for (gpu_type, one, other), (speed, other_speed) in pairs_from_gavel(document).pairs.items():
        published[gpu_type, one.application, other.application].append((speed, other_speed))
        if one != other:
            published[gpu_type, other.application, one.application].append((other_speed, speed))
    table = read_pair_table(folder / "families-pairs.csv")
    for (gpu_type, one, other), speeds in table.pairs.items():
        both = zip(*published[gpu_type, one.application, other.application], strict=True)
        assert speeds == pytest.approx([statistics.median(part) for part in both], abs=0.0051)
    rates = read_rate_table(folder / "families-speeds.json")
    relative = defaultdict(list)
    for gpu_type in TYPES:
        for row, entry in document[gpu_type].items():
            if row.endswith(", 1)") and entry["null"] and document["v100"][row]["null"]:
                relative[gavel_kind(row).application, gpu_type].append(entry["null"] / document["v100"][row]["null"])
    assert len(relative) == 21
    for (name, gpu_type), ratios in relative.items():
        assert rates[name].rate(gpu_type, Setting(0, 1)) == pytest.approx(statistics.median(ratios), abs=0.0051)
