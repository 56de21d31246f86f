"""What stands on the page of `simsched report`, and what does not."""

import base64
import hashlib
import os
import re
from collections import Counter
from functools import partial
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from simsched.cli import report
from simsched.cli.main import cli
from simsched.experiment import running
from simsched.experiment.results_name import find_experiment
from simsched.experiment.running.reproduce import reproduction_of
from simsched.experiment.validation import read_experiment
from simsched.report.page import html
from simsched.results.reader import Cell, Run, read_run

pytestmark = pytest.mark.usefixtures("in_this_process")

TRACE = "submit_time,num_gpus,duration\n" + "".join(f"{37 * i},{1 + i % 4},{100 + 53 * i}\n" for i in range(12))
ATTACK = '<script>alert(1)</script> & "it\'s"'
EXPERIMENT = """\
name: NAME
description: >-
  What an <img src=x onerror=alert(2)> must not do. Then more.
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay, sample: 10}
policies:
  - {name: fifo, label: '<script>alert(1)</script> & "it''s"'}
  - {name: tiresias, params: {interval_s: 30}}
seeds: 2
published_source: "Some & paper, Table <9>"
published:
  tiresias: {jct_mean_min: 12.34, makespan_min: 56.7}
report: {plots: false}
"""
VOID = {"meta", "br", "hr", "img", "input", "link"}


def simsched(*arguments):
    return CliRunner().invoke(cli, [str(argument) for argument in arguments], prog_name="simsched")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Make a folder with the runs `a` and `b`, and give it."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "jobs.csv").write_text(TRACE)
    for name in ("a", "b"):
        (folder / f"{name}.yaml").write_text(EXPERIMENT.replace("NAME", name))
        done = simsched("run", folder / f"{name}.yaml", "--out", folder / "results", "--workers", 1)
        assert done.exit_code == 0, done.output
    return folder / "results"


@pytest.fixture(scope="module")
def page(runs):
    done = simsched("report", runs)
    assert done.exit_code == 0, done.output
    assert done.stdout.strip() == str(runs / "report.html")
    return (runs / "report.html").read_text(encoding="utf-8")


class Reader(HTMLParser):
    """Reads a page strictly: every element is closed in its turn."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.ids, self.links, self.data, self.wrong = [], Counter(), [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in {"href", "src", "xlink:href", "srcset", "data"}:
                self.links.append(value)
            self.links += re.findall(r"url\(([^)]*)\)", value or "")
            if name.startswith("on"):
                self.wrong.append((tag, name))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        self.data.append(data)


def test_the_page_is_well_formed_and_needs_nothing_from_elsewhere(page):
    found = Reader(page)
    assert found.open == []
    assert found.wrong == []
    assert not re.search("https?:", page)
    assert "@import" not in page
    assert "url(" not in page[page.index("<style>") : page.index("</style>")]
    assert found.links
    assert all(link.startswith("#") for link in found.links)
    assert not set(found.tags) & {"img", "link", "iframe", "object"}
    assert re.findall(r"<script[^>]*>", page) == ['<script type="application/json">'] * 2 + ["<script>"] * 2


def test_the_policy_of_the_page_allows_its_own_scripts_and_nothing_from_elsewhere(page):
    """Source: Content Security Policy Level 3, section 2.3.1: the hash of a script's text, in Base64."""
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)[1]
    rules = {name: values for name, *values in (rule.split() for rule in policy.split(";"))}
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    assert rules.pop("script-src") == [f"'sha256-{one}'" for one in hashes]
    assert rules == {"default-src": ["'none'"], "style-src": ["'unsafe-inline'"], "img-src": ["data:"],
                     "base-uri": ["'none'"], "form-action": ["'none'"]}  # fmt: skip
    assert page.index(policy) < page.index("<style>")
    assert not re.search(r"<[^>]* on\w+=", page)


def test_ids_are_unique_and_every_reference_leads_somewhere(page):
    found = Reader(page)
    assert found.tags["svg"] >= 6  # both runs have the same figures, hence the same ids before they were told apart
    assert [name for name, count in Counter(found.ids).items() if count > 1] == []
    assert {link.removeprefix("#") for link in found.links} <= set(found.ids)


def test_several_runs_have_contents_and_a_section_each(page):
    assert '<li><a href="#run1">a</a>' in page
    assert '<section class="run" id="run2">' in page
    assert page.count("<h1>") == 1
    assert re.findall(r"<h2>(.*?)</h2>", page) == ["Contents", "Runs side by side", "a", "b"]


def test_numbers_lead_to_the_cells_and_jobs_behind_them(page):
    """The mean JCT of the first policy of run 2, in its own table and beside run 1, opens what it is the mean of."""
    behind = page[page.index('id="run2-behind0"') :]
    assert re.search(r'<td><a href="#run2-behind0"><b>[\d.]+</b>', page)
    assert page.index('href="#run2-behind0"') < page.index('<section class="run" id="run1">')  # side by side
    seeds, jobs = (behind[: behind.index(f'id="run2-behind0-{what}"')] for what in ("seeds", "jobs"))
    assert "<details" not in seeds
    assert re.search(r"seed 1</th><td class=\"text\">cells/\w+</td>", jobs)
    assert "JCT (s)" in behind[: behind.index("</details>")]


def test_colours_follow_the_system_and_a_switch(page):
    assert "prefers-color-scheme: dark" in page
    assert ":root[data-theme=dark]" in page
    assert '<button type="button" id="theme" hidden>' in page  # shown by the script that it needs


def test_own_and_published_values_stand_side_by_side(page):
    text = "".join(Reader(page).data)
    assert "mean JCT (min)" in text
    assert "(published 12.3)" in text
    assert re.search(r"\(published (56\.7|0\.94)\)", text)  # in minutes or in hours
    assert "In brackets: published values (Some & paper, Table <9>)." in text
    assert re.search(r"<b>[\d.]+</b> <span class=\"interval\">±[\d.]+</span>", page)
    assert f"Difference from {ATTACK}" in text


def test_labels_and_descriptions_are_text_and_never_markup(page):
    found = Reader(page)
    text = "".join(found.data)
    assert ATTACK in text
    assert "What an <img src=x onerror=alert(2)> must not do." in text
    assert "<img" not in page


def test_the_manifest_says_what_each_policy_was_told(page):
    text = "".join(Reader(page).data)
    for words in ("engine semantics", "hash of the applications", "seeds", "2 nodes of 4 GPUs (t4)", "told about"):
        assert words in text
    assert page.count('<details class="manifest"') == 2


def test_equal_runs_have_equal_pages(runs, tmp_path):
    assert simsched("run", runs.parent / "a.yaml", "--out", tmp_path, "--workers", 1).exit_code == 0
    for folder in (runs / "a", tmp_path / "a"):
        assert simsched("report", folder).exit_code == 0
    timings = [cell.manifest["timing"] for run in (runs / "a", tmp_path / "a") for cell in read_run(run).cells]
    assert all(timing["cpu_s"] > 0 for timing in timings)  # they are kept, and not on the page
    assert (runs / "a" / "report.html").read_bytes() == (tmp_path / "a" / "report.html").read_bytes()


def test_one_run_has_a_page_of_its_own_with_the_same_bytes_each_time(runs, page):
    assert simsched("report", runs / "a").exit_code == 0
    text = (runs / "a" / "report.html").read_text(encoding="utf-8")
    assert "<h1>a</h1>" in text
    assert re.findall(r'<a href="#run1-(\w+)">', text[text.index("<nav") : text.index("</nav>")]) == [
        "comparison", "differences", "held", "figures", "again"
    ]  # fmt: skip
    assert simsched("report", runs / "a", "--out", runs / "a" / "again.html").exit_code == 0
    assert (runs / "a" / "again.html").read_text(encoding="utf-8") == text
    left = {path.name for path in (runs / "a").iterdir()}
    assert left == {"again.html", "report.html", "run.json", "cells"}  # no file half written, no picture
    assert len(page) < 3_000_000


def test_a_folder_without_results_is_refused(tmp_path):
    done = simsched("report", tmp_path)
    assert done.exit_code == 2
    assert "holds no results" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_cell_is_named_and_no_page_written(runs, tmp_path):
    import shutil

    shutil.copytree(runs / "a", tmp_path / "a")
    summary = next(tmp_path.glob("a/cells/*/summary.json"))
    summary.write_text("{")
    done = simsched("report", tmp_path)
    assert done.exit_code == 2
    assert f"{summary.parent}: is damaged: summary.json" in done.stderr
    assert not (tmp_path / "report.html").exists()


def test_missing_cells_are_pointed_out(runs, tmp_path):
    import json
    import shutil

    shutil.copytree(runs / "a", tmp_path / "a")
    index = tmp_path / "a" / "run.json"
    index.write_text(json.dumps(json.loads(index.read_text()) | {"missing": ["tiresias, seed 3"]}))
    assert simsched("report", tmp_path / "a").exit_code == 0
    assert "1 of 5 cells are missing: tiresias, seed 3." in (tmp_path / "a" / "report.html").read_text("utf-8")


def described(name, *overrides, policies=None):
    """Make the run that an experiment would leave behind, without its results."""
    spec = read_experiment(find_experiment(name), overrides).spec.model_dump(mode="json")
    labels = policies or [entry["label"] or entry["name"] for entry in spec["policies"]]
    cells = tuple(Cell(Path(), {}, {}, label, label, 1) for label in labels)
    return Run(Path(), spec["name"], cells, {}, spec)


@pytest.mark.parametrize(
    ("name", "overrides", "command"),
    [
        ("quickstart", [], "simsched run quickstart"),
        ("quickstart", ["seeds=2", "workload.jobs=40"], "simsched run quickstart -o workload.jobs=40 -o seeds=2"),
        ("quickstart", ["seeds=[3, 5]"], "simsched run quickstart -o 'seeds=[3, 5]'"),
        ("sweep-load", ["sweep.workload.load=[1.0]"], "simsched run sweep-load -o 'sweep.workload.load=[1.0]'"),
        (
            "quickstart",
            ["policies.pollux.params.fairness=1"],
            "simsched run quickstart -o policies.pollux.params.fairness=1",
        ),
    ],
)
def test_the_command_of_a_shipped_experiment_names_what_was_changed(name, overrides, command):
    recipe = reproduction_of(described(name, *overrides))
    assert (recipe.command, recipe.file) == (command, "")


def test_a_run_of_some_policies_only_says_so():
    assert (
        reproduction_of(described("quickstart", policies=["pollux"])).command
        == "simsched run quickstart --policy=pollux"
    )


def test_the_experiment_of_a_user_is_given_in_full_and_reads_back_the_same(runs, tmp_path):
    run = read_run(runs / "a")
    recipe = reproduction_of(run)
    assert (recipe.command, recipe.file_name) == ("simsched run a.yaml", "a.yaml")
    assert "restart_delay_s" not in recipe.file  # a default need not be said
    (tmp_path / "a.yaml").write_text(recipe.file, encoding="utf-8")
    assert read_experiment(tmp_path / "a.yaml").spec.model_dump(mode="json") == run.experiment


def test_a_file_that_is_not_shipped_but_named_alike_is_given_in_full(tmp_path):
    text = "name: quickstart\npolicies: [{name: fifo}]\nworkload: {jobs: 5}\n"
    (tmp_path / "mine.yaml").write_text(text)
    recipe = reproduction_of(described(str(tmp_path / "mine.yaml")))
    assert (recipe.command, recipe.file_name) == ("simsched run quickstart.yaml", "quickstart.yaml")
    assert "name: fifo" in recipe.file


def test_sections_are_the_same_from_several_processes_and_where_one_of_these_ends_early(runs, monkeypatch):
    parts = report._parts([runs / name for name in "ab"])
    here, section = {}, html._section  # what this process has composed once, others compose anew
    monkeypatch.setattr(
        html,
        "_section",
        lambda part, *names: here[names] if names in here else here.setdefault(names, section(part, *names)),
    )
    alone = html.report_page(parts, "all")
    monkeypatch.setattr(report, "_LEAST_EACH", 1)
    begun = []
    begin = running.start

    def started(serve):
        begun.append(begin(serve))
        return begun[-1]

    monkeypatch.setattr(running, "start", started, raising=False)
    assert html.report_page(parts, "all", partial(report._composed, 2)) == alone
    assert len(begun) == 1
    monkeypatch.setattr(report, "_serve", os.getpid)  # takes no pipe: the process ends without an answer
    assert html.report_page(parts, "all", partial(report._composed, 2)) == alone
    assert html.report_page(parts[:1], "all", partial(report._composed, 2)) == html.report_page(parts[:1], "all")
    assert len(begun) == 2, "too few sections for another process"
