"""What each GPU type did, and which pairs shared a GPU, on intervals worked by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import pytest

from simsched.errors import InputError
from simsched.report.figures.pair_map import pair_figures, pairs_map
from simsched.results.analyses import pair_speeds
from simsched.results.metrics import find_metric
from simsched.results.summary import summarise_types

GROUPS = [
    {"nodes": 1, "gpus_per_node": 2, "gpu_type": "v100"},
    {"nodes": 2, "gpus_per_node": 4, "gpu_type": "t4"},
]
JOBS = pd.DataFrame(
    [("a", 200, 200, "lm", 20, 2), ("b", 100, 80, "lm", 20, 1), ("c", 100, 60, "gan", 0, 1)],
    columns=["job_id", "end_time_s", "jct_s", "application", "batch_size", "num_gpus"],
)
#: a begins on the V100s and moves to the T4s for longer; b and c share a T4 for 50 s.
HELD = pd.DataFrame(
    [
        ("a", 0, 50, 2, "0:2", False, "", 1.0, 1.0),
        ("a", 50, 200, 2, "2:1 1:1", False, "", 1.0, 1.0),
        ("b", 20, 50, 1, "1:1", False, "", 1.0, 1.0),
        ("b", 50, 100, 1, "1:1", False, "c", 0.5, 0.8),
        ("c", 40, 50, 1, "2:1", True, "", 1.0, 1.0),
        ("c", 50, 90, 1, "1:1", False, "b", 0.5, 0.6),
        ("c", 90, 100, 1, "1:1", False, "b", 0.5, 0.1),
    ],
    columns=[
        "job_id", "start_s", "end_s", "gpus", "placement", "restarting", "neighbours", "gpu_share", "relative_speed",
    ],
)  # fmt: skip


@dataclass
class FakeCell:
    """A cell with these tables."""

    manifest: dict[str, Any] = field(default_factory=lambda: {"cluster": GROUPS, "sharing": {"model": "pairs"}})
    held: pd.DataFrame = field(default_factory=HELD.copy)

    def has(self, table: str) -> bool:
        return True

    def table(self, name: str, columns: Any = None) -> pd.DataFrame:
        return (JOBS if name == "jobs" else self.held)[list(columns)]


@dataclass
class FakeRun:
    """A run of these cells."""

    cells: list[FakeCell]
    name: str = "fake"


def test_utilisation_hours_and_jct_of_each_type() -> None:
    found = summarise_types(JOBS, HELD, GROUPS)
    on_t4 = 2 * 150 + 30 + 0.5 * 50 + 10 + 0.5 * 50
    assert found == pytest.approx(
        {
            "gpu_hours[v100]": 100 / 3600,
            "gpu_utilisation[v100]": 100 / (2 * 200),
            "gpu_hours[t4]": on_t4 / 3600,
            "gpu_utilisation[t4]": on_t4 / (8 * 200),
            "jct_mean_s[t4]": (200 + 80 + 60) / 3,
        }
    )
    assert summarise_types(JOBS, HELD, [{**group, "gpu_type": "t4"} for group in GROUPS]) == {}


def test_metrics_of_a_type_have_names() -> None:
    assert find_metric("gpu_utilisation[v100]").title == "GPU utilisation of v100"
    assert find_metric("gpu_hours[t4]").key == "gpu_hours[t4]"
    with pytest.raises(InputError, match="no metric"):
        find_metric("makespan_s[t4]")


def test_pairs_have_their_mean_speeds_both_ways_round() -> None:
    found = pair_speeds([FakeCell(), FakeCell(held=HELD[:3])])
    kinds = ["gpu_type", "application", "batch_size", "other_application", "other_batch_size"]
    speeds = {tuple(row[kind] for kind in kinds): (row["speed"], row["sum"]) for _, row in found.iterrows()}
    assert speeds == {
        ("t4", "gan", 0, "lm", 20): pytest.approx((0.5, 1.3)),
        ("t4", "lm", 20, "gan", 0): pytest.approx((0.8, 1.3)),
    }
    assert len(pair_speeds([FakeCell(held=HELD[:3])])) == 0


def test_the_map_shows_the_sums_and_is_drawn_only_of_measured_pairs() -> None:
    ((name, plan),) = pair_figures(FakeRun([FakeCell()]))  # type: ignore[arg-type]
    figure, data = plan()
    assert name == "pairs"
    assert [text.get_text() for text in figure.axes[0].texts] == ["1.30", "0.50", "1.30", "0.80"]
    assert len(data) == 2
    constant = FakeCell(manifest={"cluster": GROUPS, "sharing": {"model": "constant"}})
    assert list(pair_figures(FakeRun([constant]))) == []  # type: ignore[arg-type]
    both = pd.concat([data, data.assign(gpu_type="k80", sum=0.9)])
    figure, _ = pairs_map(both, title="two types")
    assert [axes.get_title(loc="left") for axes in figure.axes[:2]] == ["T4: 100 % pay", "K80: 0 % pay"]
