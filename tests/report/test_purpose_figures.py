"""Figures of deadlines, agents and sharing, and the numbers behind them."""

from types import SimpleNamespace

import pytest

from simsched.report.figures.purposes import OWN_AGENT, agents_data, compares_agents, purpose_figures
from simsched.results.compare import Row


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
        ([row("a", "a", None, jct_mean_s=(10, 20))], (), []),
    ],
)
def test_figures_are_drawn_of_what_a_run_is_about(rows, swept, expected):
    labels = dict.fromkeys(one.policy for one in rows)
    drawn = {name: plan() for name, plan in purpose_figures(run(*labels, swept=swept, reference="pollux"), rows)}
    assert list(drawn) == expected
    assert all(len(data) for _, data in drawn.values())
