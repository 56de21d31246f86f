"""What a run says of itself, and the commands that begin and tidy up."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from simsched.cli.main import cli
from tests.pages import verdicts

pytestmark = pytest.mark.usefixtures("in_this_process")


def test_copies_of_a_run_are_counted_once(simsched, folder):
    done = simsched("run", "tiny.yaml", "-j", "1", "-o", "workload.sample=null")
    assert "All 2 seeds gave the same run, which is counted once, hence no interval." in done.stdout
    assert "±0.00" not in done.stdout.replace("±95", "")
    assert "+0.0 *" not in done.stdout


def test_published_values_are_left_out_where_something_else_was_run(simsched, folder):
    text = (folder / "tiny.yaml").read_text() + "published: {fifo: {jct_mean_min: 12.5}}\n"
    (folder / "tiny.yaml").write_text(text)
    assert "(12.5)" in simsched("run", "tiny.yaml", "-j", "1", "-o", "seeds=1").stdout
    done = simsched("run", "tiny.yaml", "-j", "1", "-o", "workload.sample=5")
    assert "12.5" not in done.stdout
    said = r"What was run: 5 jobs, 2 seeds, 2 policies on 8 GPUs, offered load \d\.\d\d to \d\.\d\d"
    assert re.search(said + "; t4, [^;]*; left out: 7 jobs not in the sample of 5; changed: ", done.stdout), done.stdout
    assert "Published values are left out" in done.stdout


def test_policies_that_failed_are_rows_that_say_so(simsched, folder):
    simsched("run", "tiny.yaml", "-j", "1")
    index = folder / "results" / "tiny" / "run.json"
    content = json.loads(index.read_text())
    content["cells"] = [cell for cell in content["cells"] if cell["policy"] == "fifo"]
    content["failed"] = {"tiresias, seed 1": "it broke", "tiresias, seed 2": "it broke"}
    index.write_text(json.dumps(content))
    shown = simsched("show", "results/tiny").stdout
    assert any(line.split()[:2] == ["tiresias", "failed"] for line in shown.splitlines())
    assert "Failed: tiresias, seed 1 and 1 more: it broke" in shown
    assert "tiresias,failed,,,,,0,,\n" in simsched("show", "results/tiny", "--csv").stdout
    assert "| tiresias | failed | - |" in simsched("show", "results/tiny", "--markdown").stdout
    assert simsched("report", "results/tiny").exit_code == 0
    assert ">failed<" in (folder / "results" / "tiny" / "report.html").read_text()


def test_changed_runs_do_not_overwrite_each_other(simsched, folder):
    for changes in ((), ("-o", "seeds=1"), ("-o", "seeds=2"), ("--name", "mine")):
        assert simsched("run", "tiny.yaml", "-j", "1", "--no-plots", *changes).exit_code == 0
    made = sorted(path.name for path in (folder / "results").iterdir())
    assert made == ["mine", "tiny", "tiny--seeds=1", "tiny--seeds=2"]
    assert simsched("run", "tiny.yaml", "--name", "../x").exit_code == 2


def test_clean_lists_and_removes_what_no_run_uses(simsched, folder):
    simsched("run", "tiny.yaml", "-j", "1", "--no-plots")
    assert simsched("clean").stdout == "Every cell is in use.\n"
    simsched("run", "tiny.yaml", "-j", "1", "--no-plots", "-o", "seeds=1", "--name", "tiny")
    assert simsched("clean").stdout.splitlines()[-1].startswith("2 cells unused")
    assert simsched("clean", "--remove", "--yes").exit_code == 0
    assert len(list((folder / "results" / "tiny" / "cells").iterdir())) == 2
    assert simsched("clean", "nowhere").exit_code == 2


def test_nothing_is_overwritten_without_force(simsched, folder):
    for command in (("trace", "convert", "jobs.csv", "out.csv"), ("workload", "make", "out.csv", "-o", "jobs=3")):
        (folder / "out.csv").write_text("mine")
        refused = simsched(*command)
        assert refused.exit_code == 2
        assert "out.csv: already exists; name another file, or overwrite it with --force" in refused.stderr
        assert simsched(*command, "--force").exit_code == 0


def test_new_files_run_as_they_are(simsched, folder):
    assert simsched("new", "policy", "my-policy").exit_code == 0
    assert simsched("new", "policy", "my-policy").exit_code == 2
    assert simsched("new", "experiment", "mine").exit_code == 0
    checked = simsched("check", "policy", "my_policy.py:MyPolicy", "--seeds", "1")
    assert (checked.exit_code, checked.stdout) == (0, "my-policy: conforms\n")
    few = ("-o", "workload.jobs=5", "-o", "seeds=1", "-j", "1", "--no-plots", "--profile")
    done = simsched("run", "mine.yaml", *few, "-o", "policies=[{name: 'my_policy.py:MyPolicy', label: mine}]")
    assert done.exit_code == 0, done.output
    assert "Where the time of mine, seed 1 goes" in done.stderr


def test_check_policy_says_where_and_what_was_expected(simsched, folder):
    simsched("new", "policy", "bad")
    lines = (folder / "bad.py").read_text().splitlines()
    place = next(number for number, line in enumerate(lines) if "return Decision(run" in line)
    lines[place] = "        print('hello'); return 1 / 0"
    (folder / "bad.py").write_text("\n".join(lines))
    done = simsched("--debug", "check", "policy", "bad.py:Bad", "--seeds", "1", "--json")
    found = json.loads(done.stdout)
    assert found["failures"][0]["place"].endswith(f"bad.py:{place + 1}")
    assert done.stderr.count("ZeroDivisionError: division by zero") == 0  # with --json it is in the answer
    done = simsched("check", "policy", "bad.py:Bad", "--seeds", "1", "--in-process")
    assert done.exit_code == 1
    listed = done.stdout
    assert listed.count("ZeroDivisionError") == 1  # every check fails for the same reason
    assert "(so also: all nodes down; " in listed
    assert listed.endswith(f"bad: {len(found['failures'])} checks failed\n")
    (folder / "bad.py").write_text("\n".join(lines).replace("print('hello'); return 1 / 0", "return {}"))
    # a file is loaded once in a process, so the second look is another file
    (folder / "bad.py").rename(folder / "bad2.py")
    done = simsched("check", "policy", "bad2.py:Bad", "--seeds", "1", "--in-process")
    assert "bad2.py" in done.stdout
    assert "a Decision was expected" in done.stdout


def test_a_shell_completes_experiments_and_figures(monkeypatch):
    for words, expected in (
        ("simsched run quick", "quickstart"),
        ("simsched plot results/x --figure occ", "occupancy"),
    ):
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
        monkeypatch.setenv("_SIMSCHED_COMPLETE", "bash_complete")
        done = CliRunner().invoke(cli, prog_name="simsched")
        assert f"plain,{expected}" in done.stdout.splitlines()


def test_verdicts_say_why_there_is_nothing_to_judge(simsched, folder):
    simsched("run", "tiny.yaml", "-j", "1", "--no-plots")
    assert verdicts("results").output.startswith("results: nothing to judge: no run has two rows with a pub")


def test_an_efficiency_that_tells_nothing_is_not_shown(simsched, folder):
    """Jobs that know only their duration have none; who asks for it gets it."""
    assert "efficiency" not in simsched("run", "tiny.yaml", "-j", "1", "--no-plots").stdout
    assert "efficiency" in simsched("show", "results/tiny", "-m", "statistical_efficiency").stdout
    assert "statistical_efficiency" in simsched("show", "results/tiny", "--csv").stdout


def test_the_help_of_run_says_what_a_seed_varies(simsched):
    assert "A seed (`seeds` in the file, or -o seeds=8) varies the jobs" in simsched("run", "--help").stdout


def test_tables_can_be_taken_elsewhere(simsched, folder):
    simsched("run", "tiny.yaml", "-j", "1", "--no-plots")
    assert simsched("show", "results/tiny", "--csv").stdout.startswith("policy,metric,unit,mean,low,high,seeds,")
    assert simsched("show", "results/tiny", "--markdown").stdout.startswith("| policy |")
    assert r"\toprule" in simsched("show", "results/tiny", "--latex").stdout
    drawn = simsched("plot", "results/tiny", "--figure", "queue-over-time")
    assert drawn.stdout.splitlines()[0] == "results/tiny/figures/queue-over-time.png"
    assert "did you mean 'queue-over-time'?" in simsched("plot", "results/tiny", "--figure", "queue").stderr
    refused = simsched("plot", "results/tiny", "--figure", "jct-cdf", "--metric", "makespan_h")
    assert refused.exit_code == 2
    assert "the figure 'jct-cdf' shows no metric of one's choice; draw 'bars' of it" in refused.stderr


def test_a_new_agent_conforms_and_runs(simsched, folder):
    assert simsched("new", "agent", "my-agent").stdout == (
        "my_agent.py: try `simsched check agent my_agent.py:MyAgent`\n"
    )
    assert simsched("new", "agent", "my-agent").exit_code == 2
    assert simsched("check", "agent", "my_agent.py:MyAgent", "--seeds", "1").stdout == "my-agent: conforms\n"
    text = (folder / "my_agent.py").read_text()
    (folder / "my_agent.py").write_text(text.replace("return batch_for_target", "return 7  # "))
    (folder / "my_agent.py").rename(folder / "my_worse.py")
    failed = simsched("check", "agent", "my_worse.py:MyAgent", "--seeds", "1")
    assert failed.exit_code == 1
    listed = json.loads(simsched("list", "agents", "--json").stdout)
    assert "goodput" in [one["agent"] for one in listed]
