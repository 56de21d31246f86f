"""Every command of the documents, as it stands there, from an installed wheel in an empty folder; and the site."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from click import Command, Context, Group
from click.testing import CliRunner

from tests.campaigns import WHOLE

pytestmark = pytest.mark.usefixtures("in_this_process")

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]
    if "build" not in path.parts
)
#: Commands that are not run, and why; the rest of a command that begins like this does not matter.
LONG = {
    "python3 -m venv": "installs everything anew; .ci/run does it",
    "simsched run sweep-fairness": "minutes",
    "simsched run table2": "minutes",
    "simsched run experiments/": "names a file of the checkout, and takes minutes",
    "for name in": "half an hour",
    "python docs/pages.py": "is run by the test of the site",
    "docker": "needs a container engine",
}
#: Words that stand for something of the reader's.
PLACES = re.compile(
    r"\b(TRACES|WORKLOADS|EXPECTED\.csv|JOB|DIR|RUN|OTHER|EXP|FILE|NAME|FILE-OR-FOLDER|ADDRESS|FOLDER|OUT\.csv)\b|\$[A-Z]+|\.\.\."
)


#: Commands on a run or a log that takes long; they have tests of their own, and here their options are read.
READERS = {
    "plot", "report", "export", "show", "compare", "why",
    "calibrate", "capacity", "forecast", "what-if", "score",
}  # fmt: skip
#: Documents whose every question of what would change is asked by a test of theirs, and of Slurm's log by that of the
#: operators' page: without the log's configuration, as one document has it, its windows are fitted first.
ASKED_ELSEWHERE = {"docs/operators.md", "docs/how-to/kubernetes.md", *(() if WHOLE else ("docs/slurm.md",))}
#: Commands that leave or say the same in whichever document they stand, once the file that they name is there.
SAME_EVERYWHERE = {"application", "check", "learn", "list", "new", "pack", "trace", "validate", "workload"}
#: Pairs as Gavel published them.
_ONE, _OTHER = "('LM (batch size 5)', 1)", "('ResNet-18 (batch size 16)', 1)"
PAIRS = {"v100": {_ONE: {"null": 2.0, _OTHER: [1.2, 0.8]}, _OTHER: {"null": 1.5, _ONE: [0.8, 1.2]}}}


def commands(document: str) -> list[str]:
    """List the commands of a document: lines of blocks of the shell, and indented ones, that begin with simsched."""
    text = (ROOT / document).read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = re.findall(r"^[ ]*```(\w*)\n(.*?)^[ ]*```$", text, re.DOTALL | re.MULTILINE)  # all, lest an end begins one
    blocks = [block for language, block in fenced if language in {"", "console", "sh", "bash"}]
    blocks += re.findall(
        r"(?:^    .*\n)+", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE
    )
    lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
    return [line for line in dict.fromkeys(lines) if re.match(r"simsched [a-z]", line)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel once and unpack it, as an installer does; the libraries are those of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("needs the package hatchling")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_runs_a_documented_command_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed), "SIMSCHED_CHECK_INVARIANTS": "0"}
    few = ["-o", "seeds=1", "-o", "workload.jobs=4", "--in-process", "--no-plots"]
    wanted = [["new", "experiment", "first"], ["run", "first.yaml", *few], ["validate", "tiresias/worked-example"]]
    script = (
        "import simsched; from simsched.cli.main import cli\n"
        f"assert simsched.__file__.startswith({str(installed)!r}), simsched.__file__\n"
        f"for arguments in {wanted!r}: cli(arguments, standalone_mode=False)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "valid; " in done.stdout
    assert (tmp_path / "results" / "first--seeds=1--jobs=4" / "run.json").is_file()
    assert (installed / "simsched" / "report" / "page" / "occupancy.js").is_file()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make the folder in which a reader would stand: with a trace, an experiment and policies of the documents."""
    folder = tmp_path_factory.mktemp("reader")
    lines = ["submit_time,num_gpus,duration\n", *(f"{60 * i},{1 + i % 4},{300 + 9 * i}\n" for i in range(600))]
    for name, jobs in (("philly.csv", 600), ("cluster_job_log", 40), ("my-trace.csv", 40)):
        (folder / name).write_text("".join(lines[: 1 + jobs]))
    (folder / "simulation_throughputs.json").write_text(json.dumps(PAIRS))
    (folder / "pool.json").write_bytes((ROOT / "experiments" / "pollux" / "history-pool.json").read_bytes())
    (folder / "results" / "quickstart" / "cells").mkdir(parents=True)
    network = "from simsched_policies.queues.by_key import Las\n\nclass Network(Las):\n    name = 'network'\n"
    (folder / "network.py").write_text(network)
    for document in DOCUMENTS:
        text = (ROOT / document).read_text(encoding="utf-8")
        for name, block in re.findall(
            r"save this as\s`([\w.-]+)`:\n\n```\w+\n(.*?)```", text, re.DOTALL | re.IGNORECASE
        ):
            (folder / name).write_text(block)
    for code in re.findall(
        r"```python\n(.*?)```", (ROOT / "policies" / "README.md").read_text(encoding="utf-8"), re.DOTALL
    ):
        kind = re.search(r"^class (\w+)\(Policy\)", code, re.MULTILINE)
        if kind:
            (folder / f"{re.sub(r'(?<!^)(?=[A-Z])', '_', kind[1]).lower()}.py").write_text(code)
    return folder


@pytest.fixture(scope="module")
def tried() -> set[tuple[str, ...]]:
    """Keep the commands that were tried for documents before."""
    return set()


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_commands_of_a_document_are_valid(
    document: str, place: Path, tried: set[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run what is quick, and check what is not: `run` becomes `validate` where it would take long."""
    from simsched.cli.main import cli

    monkeypatch.chdir(place)
    if document.endswith("learn-a-policy.md"):
        pytest.importorskip("gymnasium")
    quick: dict[tuple[str, ...], str] = {}  # several become the same, which needs no second try
    for command in commands(document):
        words = shlex.split(command, comments=True)[1:]
        if PLACES.search(" ".join(words)) or any(command.startswith(start) for start in LONG):
            continue
        elsewhere = document in ASKED_ELSEWHERE and words[0] == "what-if"
        if (kept := _quick(words)) and not elsewhere:
            quick.setdefault(tuple(kept), command)
        else:
            command_named(cli, words[0]).make_context(words[0], words[1:])
    for kept, command in quick.items():
        if kept in tried and kept[0] in SAME_EVERYWHERE:
            continue
        outcome = CliRunner().invoke(cli, list(kept), prog_name="simsched")
        assert outcome.exit_code in (0, 1 if "--expected" in kept else 0), f"{document}: {command}\n{outcome.output}"
        tried.add(kept)


def command_named(group: Group, name: str) -> Command:
    found = group.get_command(Context(group), name)
    assert found is not None, name
    return found


def _quick(words: list[str]) -> list[str]:
    """Keep a command as it stands, but for the time that it would take; nothing is left of what takes long at all."""
    options = [word for at, word in enumerate(words) if word in {"-o", "--override"} or words[at - 1] == "-o"]
    if words[0] == "run" and words[1] != "first.yaml":
        return ["validate", words[1], *options, "-o", "seeds=1", "-o", "sweep={}"]
    if words[0] == "run":
        few = [] if "workload.jobs=20" in words else ["-o", "seeds=1"]
        name = [] if "-o" in words else ["--name", "first"]
        return [*words, *few, *name, "-j", "1", "--no-plots"]
    if words[0] == "report" and not WHOLE:
        return []  # has tests of its own
    if words[0] == "plot" and "--figure" not in words and not WHOLE:
        return [*words, "--figure", "bars"]
    if words[:2] == ["application", "show"]:
        return [*words, "--no-plots"]
    if words[0] == "learn" and "--help" not in words:
        few = ["--generations", "1", "--population", "4", "--episodes", "1", "--seeds", "101-101", "--force"]
        return [*words, *few, "-o", "workload.jobs=4", "-o", "workload.days=14"]
    if words[0] == "league":
        return ["league", "--help"]  # has tests of its own
    if words[0] == "what-if":
        seldom = ["-o", "policy.backfill.interval_s=3600"] if "--cluster" in words else []  # manifests run under Kueue
        return [*words, *seldom, "--no-plots"]
    if words[0] == "pack":
        return [*words, "--seeds", "1", "--no-plots"]
    if words[0] in {"check", "new", "trace"} and "info" not in words:
        extra = {"check": ["--seeds", "1", "--in-process"], "new": ["--force"], "trace": ["--force"]}[words[0]]
        return [*words, *extra]
    if words[0] in READERS and "first" not in " ".join(words):
        return []
    return words


def test_the_reasons_not_to_run_a_command_are_few() -> None:
    assert len(LONG) <= 8


@pytest.mark.parametrize("page", ["look-closer.md", "drive-a-simulation.md", "learn-a-policy.md"])
def test_the_python_of_the_pages_runs(page: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    if page == "learn-a-policy.md":
        pytest.importorskip("gymnasium")
    text = (ROOT / "docs" / "how-to" / page).read_text(encoding="utf-8").rpartition("## Read results in pandas")[2]
    names: dict[str, object] = {}
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(compile(code, page, "exec"), names)


@pytest.mark.parametrize("example", sorted((ROOT / "docs" / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_the_examples_of_the_reference_print_what_they_say(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = example.read_text(encoding="utf-8")
    if "stable_baselines3" in text or "sb3_contrib" in text:
        pytest.importorskip("sb3_contrib", reason="needs the extra rl")
    exec(compile(text, example.name, "exec"), {"__name__": "example"})
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert printed == [line.strip() for line in re.findall(r"^# > (.*)$", text, re.MULTILINE)]


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pages", ROOT / "docs" / "pages.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads((ROOT / "docs" / "walkthrough.ipynb").read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") for cell in cells)
    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "walkthrough", "exec"), names)


def test_every_link_of_the_site_leads_somewhere(
    pages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = pages._draw

    def one_in_many(name: str, jobs: list[dict[str, object]], folder: Path) -> None:
        if name == "fifo":
            draw(name, jobs, folder)
        (folder / f"{name}.png").touch()

    monkeypatch.setattr(pages, "_draw", one_in_many)
    pages.gather(tmp_path / "site")
    assert (tmp_path / "site" / "docs" / "reference" / "policies" / "fifo.png").stat().st_size
    nav = re.findall(r"[\w./-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert [name for name in nav if not (tmp_path / "site" / name).is_file()] == []
    lost = [
        f"{page.relative_to(tmp_path)}: {link}"
        for page in (tmp_path / "site").rglob("*.md")
        for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", re.sub(r"`[^`]*`", "", page.read_text(encoding="utf-8")))
        if "://" not in link and not (page.parent / link).exists()
    ]
    assert lost == []
    experiment = (tmp_path / "site" / "docs" / "reference" / "experiment.md").read_text(encoding="utf-8")
    assert "| `workload.speedup` |" in experiment
    assert "| `engine.restart_delay_s` | number, at least 0, at most 1e+10 | `30` |" in experiment
