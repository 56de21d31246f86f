"""The figure of where jobs are placed: bars, or lines over a swept key, and none where nothing of it was recorded."""

from types import SimpleNamespace

from simsched.report.figures.purposes import purpose_figures
from simsched.results.compare import Row
from simsched.results.reader import Cell

KEY = "cluster.topology.0.sync_factor"


def rows(*metrics, points=({},)):
    values = {name: {("seed", 1): 0.5} for name in ("jct_mean_s", *metrics)}
    return [
        Row(policy, "fifo", point, (Cell("folder", {}, {}, policy),), values, {})
        for policy in ("near", "far")
        for point in points
    ]


def drawn(found, *swept):
    run = SimpleNamespace(name="run", shown_policies=["near", "far"], policies=["near", "far"], swept=swept)
    return {name: plan()[1] for name, plan in purpose_figures(run, found)}


def test_what_was_recorded_is_drawn_for_every_policy():
    found = drawn(rows("crossing_share", "fragmentation_by_node"))
    assert list(found) == ["placement"]
    assert list(dict.fromkeys(found["placement"]["metric"])) == [
        "jct_mean_s",
        "crossing_share",
        "fragmentation_by_node",
    ]
    assert set(found["placement"]["policy"]) == {"near", "far"}
    assert drawn(rows()) == {}


def test_a_swept_key_is_the_axis():
    found = drawn(rows("crossing_share", points=({KEY: 1}, {KEY: 4})), KEY)
    assert list(found) == ["placement-sync_factor"]
    assert sorted(set(found["placement-sync_factor"]["value"])) == [1, 4]
    assert set(found["placement-sync_factor"]["metric"]) == {"jct_mean_s", "crossing_share"}
