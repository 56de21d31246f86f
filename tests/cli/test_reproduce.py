"""The script that makes pages from nothing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from docs.filled_page import pages_in, runs_on
from simsched.errors import InputError
from simsched.experiment.results_name import find_experiment
from tests.campaigns import long

ROOT = Path(__file__).resolve().parents[2]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


reproduce = script("reproduce")
PAGES = pages_in(ROOT / "docs")


def test_the_pages_that_are_made_from_results_are_known():
    assert {page.name for page in PAGES} >= {"reproduction.md", "reproduction-gavel.md", "reproduction-sia.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_run_that_a_page_shows_is_made_by_a_command_of_the_page(page):
    steps = reproduce.steps_of(page)
    assert sorted(step.run for step in steps if step.run) == sorted(runs_on(page))
    for step in steps:
        if step.run:
            assert find_experiment(step.words[1]).is_file()


def write_page(folder, commands, run="one"):
    page = folder / "page.md"
    block = "".join(f"    {line}\n" for line in commands)
    page.write_text(
        f"<!-- simsched: commands -->\n\n{block}\n<!-- simsched: figures {run} jct_mean_h -->\n<!-- simsched: end -->\n"
    )
    return page


def test_commands_may_go_on_over_lines_and_prepare_others(tmp_path, monkeypatch):
    monkeypatch.delenv("GAVEL", raising=False)
    commands = [
        "simsched application pairs import $GAVEL/a.json pairs.csv",
        "simsched run gavel/packing -o applications.path=$GAVEL/a.json \\",
        "    --name one  # two minutes",
    ]
    first, second = reproduce.steps_of(write_page(tmp_path, commands))
    assert (first.run, second.run, second.unset) == ("", "one", ("GAVEL",))
    assert second.words == ("run", "gavel/packing", "-o", "applications.path=$GAVEL/a.json", "--name", "one")
    monkeypatch.setenv("GAVEL", "data")
    assert second.unset == ()
    assert "applications.path=data/a.json" in second.command(tmp_path)
    assert "--out" not in first.command(tmp_path)


@pytest.mark.parametrize("commands", [["simsched run quickstart"], ["simsched run quickstart --name two"], []])
def test_a_page_whose_commands_do_not_make_its_runs_is_refused(tmp_path, commands):
    with pytest.raises(InputError, match=r"no command makes|no table shows"):
        reproduce.steps_of(write_page(tmp_path, commands))


@long
def test_a_page_is_made_from_nothing_and_checked(tmp_path, capfd):
    command = "simsched run tiresias/worked-example --policy 2D-LAS --no-plots --in-process --name one"
    page = write_page(tmp_path, [command])
    assert reproduce.reproduce([page], tmp_path / "results", (), check=False) == 0
    assert "| 2D-LAS | 1 |" in page.read_text()
    page.write_text(page.read_text().replace("| 2D-LAS | 1 |", "| 2D-LAS | 2 |"))
    assert reproduce.reproduce([page], tmp_path / "results", ["one"], check=True) == 1
    assert "does not match the results: figures one jct_mean_h" in capfd.readouterr().out
    with pytest.raises(InputError, match="no page shows 'two'"):
        reproduce.reproduce([page], tmp_path / "results", ["two"], check=True)
