"""A policy's card follows from its declarations; every shipped one says how it was checked, and where that is shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from simsched_policies.evidence import EVIDENCE

from simsched.cli import cli
from simsched.experiment import QUESTIONS, policy_card
from simsched.policy import registry

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = [name for name in registry.names() if registry.load(name).__module__.startswith("simsched_policies.")]


def test_every_shipped_policy_has_evidence_and_nothing_else_has():
    assert sorted(EVIDENCE) == sorted(SHIPPED)


@pytest.mark.parametrize("name", SHIPPED)
def test_evidence_names_what_is_there(name):
    for one in EVIDENCE[name]:
        assert (ROOT / one.shown).is_file(), one.shown


@pytest.mark.parametrize("name", SHIPPED)
def test_a_card_says_what_the_policy_does_and_takes(name):
    card = policy_card(name)
    assert card.title
    assert card.title.endswith((".", ";"))
    assert any(card.parts.values())
    page = card.markdown()
    assert page.startswith(f"# {name}\n")
    assert all(f"| {key} |" in page for key, _, _ in card.parameters)
    assert card.answers <= set(QUESTIONS.values())


@pytest.mark.parametrize(
    ("name", "group", "answers"),
    [
        ("fifo", "non-clairvoyant, rigid", {"blind"}),
        ("srtf", "oracle, rigid", {"oracle"}),
        ("pollux", "learned or profiled, elastic", {"elastic"}),
        ("chronus", "oracle, rigid", {"oracle", "deadlines"}),
        ("sia", "learned or profiled, elastic", {"elastic", "typed"}),
    ],
)
def test_the_class_of_a_policy_follows_from_what_it_reads_and_changes(name, group, answers):
    card = policy_card(name)
    assert (card.group, set(card.answers)) == (group, answers)


MINE = '''"""Mine: longest name first.

Idea: names decide. In two cases:

- the first,
  which goes on;
- the second.

Deviations: none.
"""

from dataclasses import dataclass
from typing import ClassVar

from simsched.policy import Decision, Policy, Traits
from simsched.policy.signals import REMAINING_WORK


@dataclass
class Mine(Policy):
    """Sorts by name."""

    name: ClassVar[str] = "mine"
    traits: ClassVar[Traits] = Traits(needs={REMAINING_WORK}, rigid=False)

    patience_s: float | None = None

    def decide(self, view, rng):
        return Decision()
'''


def test_a_policy_of_ones_own_has_a_card(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    card = policy_card("mine.py:Mine")
    assert (card.name, card.group, card.title) == ("mine.py:Mine", "oracle, elastic", "Mine: longest name first.")
    assert card.parts["Idea"] == ["Names decide. In two cases:"]
    assert card.parts[""] == ["- the first, which goes on;\n- the second."]
    assert card.parts["Deviations"] == ["None."]
    assert card.signals == {"remaining_work": "oracle"}
    assert card.parameters == (("`patience_s`", "`float | None`", "`null`"),)
    assert card.evidence == ()


def run(*words):
    return CliRunner().invoke(cli, list(words))


def test_show_policy_prints_the_card_and_names_neighbours_of_an_unknown_one():
    shown = run("show", "policy", "tiresias")
    assert shown.exit_code == 0
    assert "| `queue_thresholds_gpu_s` | `Sequence[int]` | `[57600]` |" in shown.output
    told = json.loads(run("show", "policy", "srtf", "--json").output)
    assert (told["group"], told["signals"]) == ("oracle, rigid", {"remaining_work": "oracle"})
    wrong = run("show", "policy", "tiresiass")
    assert wrong.exit_code == 2
    assert "did you mean 'tiresias'" in wrong.output
    assert run("show", "elsewhere", "tiresias").exit_code == 2


def test_list_policies_gives_each_a_line():
    lines = run("list", "policies").output.splitlines()
    assert len(lines) == 2 + len(registry.names())
    assert not any("…" in line for line in lines)


def test_the_card_of_a_scheduler_names_its_release_and_the_defaults_of_its_features():
    card = policy_card("kueue")
    assert card.follows.startswith("Kueue v0.20")
    assert "| TASBalancedPlacement | off |" in card.markdown()
    assert "(Kueue v0.20.0-devel)" in run("list", "policies").output
