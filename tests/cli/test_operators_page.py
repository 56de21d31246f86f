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
from tests.campaigns import WHOLE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"


def commands() -> list[list[str]]:
    """Return the commands of the page's first four sections."""
    text = PAGE.read_text(encoding="utf-8").split("## Time limits")[0]
    blocks = re.findall(r"(?ms)^```\w*\n(.*?)^```$", text)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("simsched ")]
    return [shlex.split(line)[1:] for line in lines]


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


#: Of the replays' time most goes into looking at the queue every minute.
SELDOM = () if WHOLE else ("-o", "policy.backfill.interval_s=600")


#: What else would be fitted to a log, in which no other reading comes closer to the log that ships.
_AS_BY_DEFAULT = (
    "backfill.from_pass=false", "backfill.whole_nodes=false", "backfill.kind=conservative", "placement=fragments",
    "backfill.counts=nodes", "backfill.holders=partition",
)  # fmt: skip
SAID_BY_HAND = [word for key in _AS_BY_DEFAULT for word in ("-o", f"policy.{key}")]


def shortened(words: list[str], drawn: Sequence[str] = ()) -> list[str]:
    """Let backfill look every ten minutes, fit its settings once, draw one queue twice, and figures not again.

    Where everything is played nothing is changed.
    """
    if WHOLE:
        return words
    few = ("--moments", "1", "--draws", "2") if words[0] == "forecast" else ()
    fitted = () if words[0] == "calibrate" else SAID_BY_HAND
    return [*words, *SELDOM, *fitted, *few, *(("--no-plots",) if words[0] in drawn else ())]


@pytest.fixture(scope="module")
def answered(
    tmp_path_factory: pytest.TempPathFactory, in_this_process: None, few_nodes_tried: None
) -> Iterator[dict[str, Result]]:
    """Bring the log and ask the page's questions in one folder, the last first; return what was said by question.

    Unless everything is played, invariants are left to the replays of others.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("page"))
        if not WHOLE:
            patch.delenv("SIMSCHED_CHECK_INVARIANTS")
        new, *asked = commands()
        assert CliRunner().invoke(cli, new).exit_code == 0
        done: dict[str, Result] = {}
        for words in reversed(asked):
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


@pytest.mark.usefixtures("in_this_process")
def test_a_log_that_lacks_what_matters_gets_no_answer(simsched: Callable) -> None:
    assert simsched("new", "log").exit_code == 0
    header, *rows = Path("log.txt").read_text(encoding="utf-8").splitlines()
    place = header.split("|").index("Partition")
    cells = [row.split("|") for row in rows]
    blank = ["|".join([*one[:place], "", *one[place + 1 :]]) for one in cells]
    Path("stripped.txt").write_text("\n".join([header, *blank]) + "\n", encoding="utf-8")
    conf = ("--conf", "slurm.conf", "--conf", "qos.txt", "--json", "--no-plots")
    done = simsched(
        "capacity",
        "stripped.txt",
        "--cluster",
        "cluster.txt",
        *conf,
        "--target",
        "queueing_mean_h<=4",
        *SELDOM,
        *SAID_BY_HAND,
    )
    told = json.loads(done.stdout)
    assert told["answers"] == []
    assert not told["gate"]["open"]
    assert "name no partition" in told["gate"]["reasons"][0]
    # Nor does the log under a policy that was not in force.
    other = ("--policy", "kueue", "--change", "cluster.groups.0.nodes=12", "--json", "--no-plots")
    wrong = json.loads(simsched("what-if", "log.txt", "--cluster", "cluster.txt", *other).stdout)
    assert wrong["effects"] == []
    assert not wrong["gate"]["open"]


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
