import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from simsched.errors import InputError
from simsched.plugins import parameters
from simsched.policy import REMAINING_WORK, Policy, Traits, registry
from simsched.sources import plugin_code

POLICY = '''
from dataclasses import dataclass, field
from collections.abc import Sequence
from typing import ClassVar
from simsched.policy import Decision, Policy

@dataclass
class Mine(Policy):
    """Does nothing."""

    name: ClassVar[str] = "mine"
    limits: Sequence[int] = (1, 2)
    _state: list = field(init=False, repr=False, default_factory=list)

    def decide(self, view, rng):
        return Decision({})

class Plain(Policy):
    name = "plain"

    def decide(self, view, rng):
        return Decision({})

class NotOne:
    pass
'''


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine.py").write_text(textwrap.dedent(POLICY))
    return tmp_path


def test_shipped_policies_come_through_the_entry_points():
    assert {"fifo", "srtf", "tiresias", "optimus", "pollux"} <= set(registry.names())
    assert registry.load("tiresias").name == "tiresias"


def test_a_policy_is_found_in_a_module_and_in_a_file(mine):
    assert registry.load("simsched_policies.queues.by_key:Fifo") is registry.load("fifo")
    by_folder = registry.load("mine.py:Mine", folder=mine)
    assert by_folder.name == "mine"
    assert registry.load(f"{mine}/mine.py:Mine") is by_folder


def test_parameters_are_those_of_the_constructor(mine):
    (limits,) = parameters(registry.load("mine.py:Mine", folder=mine))
    assert (limits.name, limits.default, limits.required) == ("limits", (1, 2), False)
    assert parameters(registry.load("mine.py:Plain", folder=mine)) == ()


def test_types_are_those_of_the_module_in_which_they_are_written(tmp_path, monkeypatch):
    (tmp_path / "base_policy.py").write_text("from __future__ import annotations\n" + POLICY)
    child = (
        "from __future__ import annotations\nfrom dataclasses import dataclass, field\nfrom base_policy import Mine\n"
    )
    child += "@dataclass\nclass Child(Mine):\n    extra: NotThere = field(default_factory=lambda: [7])\n"
    (tmp_path / "child_policy.py").write_text(child)
    monkeypatch.syspath_prepend(tmp_path)
    limits, extra = parameters(registry.load("child_policy:Child"))
    assert limits.annotation == Sequence[int]
    assert (extra.annotation, extra.default) == (Any, [7])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tiresia", "policy 'tiresia': there is no such policy; did you mean 'tiresias'?"),
        ("no.such.module:Thing", "'no.such.module' cannot be loaded: ModuleNotFoundError"),
        ("mine.py:Mein", "has no policy 'Mein'; did you mean 'Mine'?"),
        ("mine.py:NotOne", "this is no policy"),
        ("other.py:Mine", "there is no file"),
        ("broken.py:Mine", "cannot be loaded: ZeroDivisionError"),
        ("json:dumps", "this is no policy"),
    ],
)
def test_what_cannot_be_found_or_used_is_explained(mine, name, said):
    (mine / "broken.py").write_text("1 / 0\n")
    with pytest.raises(InputError) as caught:
        registry.load(name, folder=mine)
    assert said in str(caught.value)


def test_the_source_hash_follows_the_file(tmp_path):
    hashes = []
    for text in (POLICY, POLICY, POLICY + "# changed\n"):
        folder = tmp_path / str(len(hashes))
        folder.mkdir()
        (folder / "mine.py").write_text(text)
        hashes.append(plugin_code(registry.load("mine.py:Mine", folder=folder)))
    assert hashes[0] == hashes[1]
    assert hashes[0] != hashes[2]


def test_the_source_hash_of_a_folder_covers_all_its_files(tmp_path, monkeypatch):
    package = tmp_path / "folder_policy"
    (package / "deep").mkdir(parents=True)
    (package / "__init__.py").write_text("from folder_policy.core import Mine\n")
    (package / "core.py").write_text(POLICY)
    (package / "deep" / "helper.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    policy = registry.load("folder_policy:Mine")
    before = plugin_code(policy)
    (package / "deep" / "helper.py").write_text("x = 2\n")
    assert plugin_code(policy) != before


def test_shipped_policies_of_different_files_have_different_hashes():
    names = ("fifo", "gittins", "tiresias", "optimus", "pollux")
    assert len({plugin_code(registry.load(name)).digest for name in names}) == len(names)


def test_attributes_of_a_class_that_are_named_as_traits_are_traits():
    class Old(Policy):
        """Is declared as policies were before they had traits; its parameter `quantum` is no trait."""

        name = "old"
        needs = frozenset({REMAINING_WORK})
        rigid = False
        quantum = 60

    class Younger(Old):
        """Says one thing otherwise, and where it depends."""

        traits = replace(Old.traits, scales=True)

        @property
        def rigid(self):
            return True

    assert Old.traits == Traits(needs={REMAINING_WORK}, rigid=False)
    assert (Old().rigid, Old().signals) == (False, {REMAINING_WORK})
    assert Younger.traits == Traits(needs={REMAINING_WORK}, rigid=False, scales=True)
    assert Younger().rigid
