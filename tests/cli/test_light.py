"""The command before it does anything: help without heavy imports, former names, an interrupt while it loads."""

import json
import os
import signal
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from simsched.api import progress
from simsched.cli import entry
from simsched.cli.main import cli
from simsched.experiment import policy_params

HEAVY = ("numpy", "pandas", "numba", "scipy", "matplotlib", "pyarrow", "pydantic", "yaml", "rich")
COMMANDS = (["--help"], ["run", "--help"], ["trace", "generate", "--help"], ["--version"])
SCRIPT = f"""
import sys
from simsched.cli.main import cli
for arguments in {COMMANDS!r}:
    try:
        cli(arguments, prog_name="simsched")
    except SystemExit as end:
        assert end.code == 0, end.code
    print("heavy:", arguments, [name for name in {HEAVY!r} if name in sys.modules])
"""


def test_help_imports_nothing_heavy():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    heavy = [line for line in done.stdout.splitlines() if line.startswith("heavy: ")]
    assert heavy == [f"heavy: {arguments} []" for arguments in COMMANDS]


def test_every_command_and_option_has_help():
    context = click.Context(cli)

    def walk(command):
        assert command.help, command.name
        yield command
        for name in command.list_commands(context) if isinstance(command, click.Group) else ():
            yield from walk(command.get_command(context, name))

    names = {command.name for command in walk(cli)}
    assert {"run", "validate", "schema", "list", "show", "compare", "plot", "fit", "policy"} <= names


@pytest.mark.parametrize(
    ("former", "now"),
    [
        ("compare-runs", "compare RUN OTHER"),
        ("validate-run", "compare RUN --expected CSV"),
        ("plan", "compare RUN --plan-seeds"),
        ("explain", "why RUN [--workload NAME]"),
    ],
)
def test_a_former_name_says_the_new_one(former, now):
    done = CliRunner().invoke(cli, [former, "results/any"])
    assert (done.exit_code, done.stderr) == (2, f"Error: '{former}' is now `simsched {now}`.\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["compare", "a", "b", "--plan-seeds"], "--plan-seeds: cannot be combined with OTHER"),
        (["compare", "a", "--difference", "0.1"], "--difference: has no effect with RUN alone"),
        (["compare", "a", "--expected", "b.csv", "-m", "jct_mean_s"], "--metric: has no effect with --expected"),
        (["compare", "a", "--plan-seeds", "-m", "jct_mean_s", "-m", "jct_p99_s"], "--metric: seeds are planned for"),
        (["why", "a", "--at", "3"], "--at: needs a job"),
        (["why", "a", "--job", "b", "--workload", "c"], "--workload: cannot be combined with --job"),
    ],
)
def test_options_of_another_form_of_a_command_are_refused(arguments, said):
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"simsched: {said}")


@pytest.mark.parametrize(
    ("kind", "known"),
    [
        ("experiments", "quickstart"),
        ("metrics", "jct_mean_s"),
        ("agents", "goodput"),
        ("applications", "imagenet"),
        ("traces", "philly-synthetic"),
        ("figures", "bars"),
    ],
)
def test_a_list_cuts_nothing_and_has_a_line_for_each_entry(kind, known):
    listed = json.loads(CliRunner().invoke(cli, ["list", kind, "--json"]).stdout)
    lines = CliRunner().invoke(cli, ["list", kind]).stdout.splitlines()[2:]
    assert len(lines) == len(listed)
    assert known in [next(iter(one.values())) for one in listed]
    for line, one in zip(lines, listed, strict=True):
        assert line.endswith(list(one.values())[-1].rstrip())
        assert "…" not in line
    assert kind != "experiments" or max(map(len, lines)) > 200


def test_the_list_of_policies_is_kept_until_their_code_changes(tmp_path, monkeypatch):
    def listed():
        return CliRunner().invoke(cli, ["list", "policies"])

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names, cards = ("fifo", "las"), []
    monkeypatch.setattr("simsched.policy.registry.names", lambda: names)
    counted = lambda name, of=policy_params.policy_card: cards.append(name) or of(name)  # noqa: E731
    monkeypatch.setattr("simsched.experiment.policy_card", counted)
    first = listed()
    assert (first.exit_code, cards) == (0, ["fifo", "las"])
    assert listed().stdout == first.stdout
    assert len(cards) == 2
    kept = tmp_path / "simsched" / "policies.json"
    for text in ("{}", "[", kept.read_text().replace('"key": "', '"key": "0')):
        kept.write_text(text)
        cards.clear()
        assert (listed().stdout, len(cards)) == (first.stdout, 2)
    names = ("fifo",)
    assert len(listed().stdout.splitlines()) == 3
    kept.unlink()
    kept.mkdir()
    assert len(listed().stdout.splitlines()) == 3


def test_progress_says_how_long_the_rest_takes(monkeypatch, capsys):
    times = iter((0.0, 100.0, 130.0, 4000.0, 4001.0, 4002.0))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(times))
    cell, told = SimpleNamespace(name="fifo"), progress.LineListener()
    told.began(6, 1)
    for _ in range(5):
        told.finished(cell, 1.0)
    assert capsys.readouterr().err.splitlines() == [
        "6 cells, 1 of them reused",
        "[2/6] fifo (1.0 s), about 6 min 40 s left",
        "[3/6] fifo (1.0 s), about 3 min 15 s left",
        "[4/6] fifo (1.0 s), about 44 min 27 s left",
        "[5/6] fifo (1.0 s), about 16 min 41 s left",
        "[6/6] fifo (1.0 s)",
    ]


class Interrupted(ModuleType):
    """A module during whose import Ctrl-C is pressed."""

    def __getattr__(self, name):
        raise KeyboardInterrupt


def test_an_interrupt_while_loading_leaves_a_message_and_no_traceback(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "simsched.cli.main", Interrupted("simsched.cli.main"))
    with pytest.raises(SystemExit) as ended:
        entry.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "simsched: interrupted\n"


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
@pytest.mark.parametrize("way", ["error", "finaliser"])
def test_a_stop_that_a_library_turns_into_its_own_error_or_loses_ends_the_command(way):
    lost = "raise RuntimeError('library') from None" if way == "error" else "raise"
    code = f"""
import os, signal, sys
import simsched.cli.main as command
import simsched.cli.show as listing
class Lost:
    def __del__(self):
        self.stop()
    def stop(self):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            for _ in range(1000): pass
        except KeyboardInterrupt:
            {lost}
def shipped(*_):
    Lost(){".stop()" if way == "error" else ""}
    for _ in range(10**9): pass
import simsched.experiment
simsched.experiment.shipped_experiments = shipped
sys.argv = ["simsched", "list", "experiments"]
command.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (128 + signal.SIGTERM, "simsched: interrupted; finished work is kept\n")
