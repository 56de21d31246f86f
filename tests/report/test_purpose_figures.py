"""Figures of deadlines, agents and sharing, and the numbers behind them."""

from math import exp
from types import SimpleNamespace

import pandas as pd
import pytest

from simsched.report.figures.models import efficiency_sheet, throughput_sheet
from simsched.report.figures.purposes import (
    OWN_AGENT,
    agents_data,
    checkpoint_interval,
    compares_agents,
    daly_s,
    purpose_figures,
    young_s,
)
from simsched.results.compare import Row
from simsched.results.reader import Cell


def row(label, policy, load, agent=None, **values):
    manifest = {} if agent is None else {"agent": {"name": agent}}
    cells = tuple(
        SimpleNamespace(shown_policy=label, manifest=manifest, summary={"finished_jobs": seed}) for seed in (1, 2)
    )
    point = {} if load is None else {"workload.load": load}
    found = {name: {(seed,): value for seed, value in enumerate(each)} for name, each in values.items()}
    return Row(label, policy, point, cells, found, {})


def run(*labels, swept=("workload.load",), reference=None):
    return SimpleNamespace(name="tiny", swept=swept, policies=labels, shown_policies=labels, reference=reference)


AGENTS = [
    one
    for load in (1.0, 2.0)
    for one in (
        row("pollux", "pollux", load, jct_mean_s=(100, 200), statistical_efficiency=(0.8, 0.9)),
        row("Gavel", "gavel", load, jct_mean_s=(150, 600), statistical_efficiency=(0.8, 0.9)),
        row("Gavel + cabs", "gavel", load, "cabs", jct_mean_s=(200, 500), statistical_efficiency=(0.7, 0.9)),
    )
]


def test_agents_are_lines_in_the_panel_of_their_scheduler_relative_to_the_reference_seed_by_seed():
    data = agents_data(AGENTS, "workload.load", "pollux")
    assert set(data["panel"]) == {"Gavel"}
    first = data[(data["metric"] == "jct_mean_ratio") & (data["value"] == 1.0)].set_index("line")
    means = {"pollux": 1.0, OWN_AGENT: (1.5 * 3) ** 0.5, "cabs": (2 * 2.5) ** 0.5}  # geometric, as of all ratios
    assert first["mean"].to_dict() == pytest.approx(means)
    assert set(agents_data(AGENTS, "workload.load")["metric"]) == {"jct_mean_s", "statistical_efficiency"}


def test_only_runs_that_compare_agents_are_drawn_so():
    assert compares_agents(AGENTS)
    assert not compares_agents([one for one in AGENTS if "+" not in one.policy])
    assert not compares_agents([one for one in AGENTS if one.policy != "Gavel"])


@pytest.mark.parametrize(
    ("rows", "swept", "expected"),
    [
        (AGENTS, ("workload.load",), ["agents"]),
        ([row("a", "a", None, deadlines_met=(0.5, 0.6), promises_kept=(0.9, 1.0))], (), ["deadlines"]),
        (
            [row("a", "a", load, deadlines_met=(0.5, 0.6), promises_kept=(1, 1)) for load in (1.0, 2.0)],
            ("workload.load",),
            ["deadlines-load", "deadlines"],
        ),
        ([row("a", "a", None, speed_per_gpu=(1.4, 1.3), jct_mean_s=(10, 20))], (), ["sharing"]),
        ([row("a", "a", None, jct_mean_s=(10, 20), fragmentation_by_node=(0.5, 0.6))], (), ["placement"]),
        ([row("a", "a", None, jct_mean_s=(10, 20))], (), []),
    ],
)
def test_figures_are_drawn_of_what_a_run_is_about(rows, swept, expected):
    labels = dict.fromkeys(one.policy for one in rows)
    drawn = {name: plan() for name, plan in purpose_figures(run(*labels, swept=swept, reference="pollux"), rows)}
    assert list(drawn) == expected
    assert all(len(data) for _, data in drawn.values())


def test_the_optima_are_those_published():
    assert young_s(14_400, 30) == pytest.approx(929.5, abs=0.1)
    # The minimum of exp((tau + cost) / mtbf) - 1 over tau lies where (1 - tau / mtbf) exp((tau + cost) / mtbf) = 1.
    best = daly_s(14_400, 30)
    assert (1 - best / 14_400) * exp((best + 30) / 14_400) == pytest.approx(1, abs=1e-5)
    assert daly_s(10, 30) == 10


def test_the_curve_and_the_optima_are_drawn():
    rows = [("fifo", "fifo", "effective_training_ratio", "share", tau, 0.9, 0.8, 1.0, 4, None) for tau in (120, 900)]
    columns = ["line", "policy", "metric", "unit", "value", "mean", "low", "high", "seeds", "published"]
    physics = {"mtbf_s": 14_400, "cost_s": 30, "restart_s": 60}
    figure, _ = checkpoint_interval(pd.DataFrame(rows, columns=columns), physics, title="t")
    labels = [line.get_label() for line in figure.axes[0].lines if not line.get_label().startswith("_")]
    assert labels == ["fifo", "expected (Daly)", "Young: 15.5 min", "Daly: 15.2 min"]


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


def test_a_swept_key_is_the_axis():
    found = drawn(rows("crossing_share", points=({KEY: 1}, {KEY: 4})), KEY)
    assert list(found) == ["placement-sync_factor"]
    assert sorted(set(found["placement-sync_factor"]["value"])) == [1, 4]
    assert set(found["placement-sync_factor"]["metric"]) == {"jct_mean_s", "crossing_share"}


def throughputs():
    return pd.DataFrame(
        [
            {"application": name, "source": source, "gpus": gpus, "batch_size": size, "throughput": 10.0 * gpus + extra}
            for name, counts in (("a", (1, 2, 4)), ("b", (1,)))
            for size in (8, 16)
            for gpus in counts
            for source, extra in (("measured", 0.5), ("model", 0.0))
        ]
    )


def test_each_application_has_a_panel_with_circles_and_lines():
    figure, data = throughput_sheet(throughputs())
    panels = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in panels] == ["a", "b"]
    shown = [line for line in panels[0].get_lines() if len(line.get_xdata())]
    circles = [line for line in shown if line.get_marker() == "o"]
    lines = [line for line in shown if line.get_linestyle() == "-"]
    assert [list(line.get_ydata()) for line in circles] == [[10.5, 20.5, 40.5]] * 2
    assert [list(line.get_ydata()) for line in lines] == [[10.0, 20.0, 40.0]] * 2
    assert [text.get_text() for text in panels[0].get_legend().get_texts()] == ["8", "16"]
    assert len(data) == 16


def test_a_model_of_one_point_is_seen():
    figure, _ = throughput_sheet(throughputs())
    bars = [line for line in figure.axes[1].get_lines() if line.get_marker() == "_"]
    assert [list(line.get_ydata()) for line in bars] == [[10.0]] * 2


def test_efficiency_is_drawn_in_per_cent():
    table = pd.DataFrame(
        [
            {"application": "a", "source": source, "progress": done, "batch_size": 8, "efficiency": 0.5 + done / 4}
            for done in (0.0, 0.5)
            for source in ("measured", "model")
        ]
    )
    figure, data = efficiency_sheet(table)
    line = figure.axes[0].get_lines()[0]
    assert (list(line.get_xdata()), list(line.get_ydata())) == ([0, 50], [50, 62.5])
    assert data["efficiency"].tolist() == [0.5, 0.5, 0.625, 0.625]
