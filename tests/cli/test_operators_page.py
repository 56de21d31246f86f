"""The commands of docs/operators.md run as they stand, on the log that ships."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from simsched.cli.main import cli
from simsched.report.page import Section, write_answer
from tests.campaigns import WHOLE, played

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


def commands() -> list[list[str]]:
    """Return the commands of the page's first four sections, without those that bring further logs."""
    text = PAGE.read_text(encoding="utf-8").split("## Time limits")[0]
    blocks = re.findall(r"(?ms)^```\w*\n(.*?)^```$", text)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("simsched ")]
    return [shlex.split(line)[1:] for line in lines if "--rules" not in line]


#: What a command says on the log that ships.
SAID = {
    "calibrate": r"^The replay may answer",
    "what-if": r"Forecast of(?!.*NOT TRUSTED)",
    "capacity": r"are enough",
    "forecast": r"Slurm|of the starts fell within the 80 % intervals",
}


def test_the_page_shows_every_command_and_begins_with_the_log() -> None:
    assert commands()[0][0] == "new"
    assert {words[0] for words in commands()[1:]} == SAID.keys()


#: Where not everything is played: the days of the log around its queue, and how many of them the gate then asks for.
FROM, UNTIL, LEAST_DAYS = "2024-03-17", "2024-03-20", 1


def bring_the_log() -> None:
    """Write the sample log, or its jobs that were there on a few days."""
    assert CliRunner().invoke(cli, commands()[0]).exit_code == 0
    header, *rows = Path("log.txt").read_text(encoding="utf-8").splitlines()
    kept = [row for row in rows if WHOLE or (row.split("|")[4] >= FROM and row.split("|")[1] < UNTIL)]
    Path("log.txt").write_text("\n".join([header, *kept]) + "\n", encoding="utf-8")


def shortened(words: list[str], drawn: Sequence[str] = ()) -> list[str]:
    """Draw one queue twice, and draw no figures of what is `drawn` already, unless everything is played."""
    few = ("--moments", "1", "--draws", "2") if words[0] == "forecast" else ()
    return words if WHOLE else [*words, *few, *(("--no-plots",) if words[0] in drawn else ())]


@pytest.fixture(scope="module")
def little_evidence() -> Iterator[None]:
    """Let a few days be evidence, and leave invariants to the replays of others, unless everything is played."""
    with pytest.MonkeyPatch.context() as patch:
        if not WHOLE:
            patch.setattr("simsched.operators.gate.LEAST_DAYS", LEAST_DAYS)
            patch.delenv("SIMSCHED_CHECK_INVARIANTS")
        yield


@pytest.fixture(scope="module")
def answered(
    tmp_path_factory: pytest.TempPathFactory, in_this_process: None, few_nodes_tried: None, little_evidence: None
) -> Iterator[dict[str, Result]]:
    """Bring the log and ask the page's questions in one folder, the last first; return what was said by question."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        bring_the_log()
        done: dict[str, Result] = {}
        for words in reversed(commands()[1:]):
            drawn = [said.split()[0] for said in done]
            done[" ".join(words)] = CliRunner().invoke(cli, shortened(words, drawn))
        yield done


@pytest.mark.parametrize("words", commands()[1:], ids=lambda words: f"{words[0]} {words[-1]}")
def test_a_command_of_the_page_runs_as_it_stands(words: list[str], answered: dict[str, Result]) -> None:
    done = answered[" ".join(words)]
    assert done.exit_code == 0, (words, done.output)
    assert re.search(SAID[words[0]], done.stdout, re.DOTALL)
    assert f'id="{words[0]}"' in Path("results/log/answers.html").read_text(encoding="utf-8")


def test_answers_stand_in_their_order_on_one_page_whichever_was_asked_first(answered: dict[str, Result]) -> None:
    page = Path("results/log/answers.html").read_text(encoding="utf-8")
    places = [page.index(f'id="{name}"') for name in ("calibrate", "what-if", "capacity", "forecast", "words")]
    assert places == sorted(places)


@pytest.mark.usefixtures("in_this_process", "little_evidence")
def test_a_log_that_lacks_what_matters_gets_no_answer(simsched: Callable) -> None:
    bring_the_log()
    header, *rows = Path("log.txt").read_text(encoding="utf-8").splitlines()
    place = header.split("|").index("Partition")
    cells = [row.split("|") for row in rows]
    blank = ["|".join([*one[:place], "", *one[place + 1 :]]) for one in cells]
    Path("stripped.txt").write_text("\n".join([header, *blank]) + "\n", encoding="utf-8")
    options = ("--cluster", "cluster.txt", "--json", "--no-plots", "--policy", "kueue")
    told = json.loads(simsched("capacity", "stripped.txt", *options, "--target", "queueing_mean_h<=4").stdout)
    assert told["answers"] == []
    assert not told["gate"]["open"]
    assert "name no partition" in told["gate"]["reasons"][0]
    # Nor does the log under a policy that was not in force.
    wrong = json.loads(simsched("what-if", "log.txt", *options, "--change", "cluster.groups.0.nodes=12").stdout)
    assert wrong["effects"] == []
    assert not wrong["gate"]["open"]
    assert "over the best guess" in wrong["gate"]["reasons"][0]


OTHER_RULES = (("small-first", "The replay may answer.*skill 0.61"), ("fair-share", "does not answer.*skill 0.21"))


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize(
    ("rules", "verdict"), played(OTHER_RULES, OTHER_RULES[1:]), ids=lambda word: word.partition(" ")[0]
)
def test_logs_of_other_rules_get_the_verdicts_of_the_page(rules: str, verdict: str, simsched: Callable) -> None:
    assert simsched("new", "log", "plain").exit_code == simsched("new", "log", rules, "--rules", rules).exit_code == 0
    logs = [Path(folder, "log.txt").read_text(encoding="utf-8").splitlines() for folder in ("plain", rules)]
    jobs = [[line.split("|")[:3] for line in log] for log in logs]
    assert jobs[0] == jobs[1]
    assert sum(one != other for one, other in zip(*logs, strict=True)) > 100
    if WHOLE:
        conf = [word for name in ("slurm.conf", "partitions.txt", "qos.txt", "assoc.txt")
                for word in ("--conf", f"{rules}/{name}")]  # fmt: skip
        done = simsched("calibrate", f"{rules}/log.txt", "--cluster", f"{rules}/cluster.txt", *conf, "--no-plots")
        assert re.search(verdict, done.stdout)


def test_the_page_keeps_every_question_and_compares_their_answers(tmp_path):
    def asked(question, wait):
        words = [f"the queue waits {wait} h"]
        return Section(
            "what-if", question, words, question=question, sentence=f"{question}: {wait} h", compared={"all": wait}
        )

    for question, wait in (("4 more nodes", "1.1"), ("6 fewer nodes", "5.2"), ("4 more nodes", "1.2")):
        page = write_answer(asked(question, wait), tmp_path, "log").read_text(encoding="utf-8")
    assert page.count("4 more nodes: 1.2 h") == 1
    assert "6 fewer nodes: 5.2 h" in page
    assert "the queue waits 5.2 h" in page
    assert "the queue waits 1.1 h" not in page
    assert page.index('id="answers"') < page.index('id="what-if"') < page.index('id="what-if-2"')
    assert "All changes" in page
