"""`simsched application`: several GPU types side by side, tables of rates, and tables of pairs."""

import json

import pytest
from click.testing import CliRunner

from simsched.cli.main import cli

pytestmark = pytest.mark.usefixtures("in_this_process")

LM = "('LM (batch size 5)', {})"
ONE, OTHER = LM.format(1), "('ResNet-18 (batch size 16)', 1)"


def application(*arguments):
    return CliRunner().invoke(cli, ["application", *map(str, arguments)], prog_name="simsched")


def test_published_types_stand_side_by_side():
    done = application("show", "cifar10", "--extra-types", "sia", "--no-plots")
    assert done.exit_code == 0, done.output
    assert [line.split()[4] for line in done.output.splitlines() if line.startswith("Throughput in")] == [
        "a100,", "rtx,", "t4,",
    ]  # fmt: skip
    ratios = done.output.partition("Speed relative to a100")[2].splitlines()
    assert ratios[1].split() == ["GPUs", "a100", "rtx", "t4"]
    assert ratios[3].split() == ["1", "1.00", "0.38", "0.17"]
    alone = application("show", "cifar10", "--extra-types", "sia", "--gpu-type", "rtx", "--no-plots")
    assert "on t4" not in alone.output
    assert "on rtx" in alone.output
    wrong = application("show", "cifar10", "--extra-types", "sia", "--gpu-type", "rxt", "--no-plots")
    assert wrong.exit_code == 2
    assert "did you mean 'rtx'?" in wrong.output


def test_rates_by_type_and_number_of_gpus_are_shown_and_drawn(tmp_path):
    rates = {"v100": {LM.format(1): {"null": 10.0}, LM.format(2): {"null": 16.0}}, "k80": {LM.format(1): {"null": 2.5}}}
    path = tmp_path / "rates.json"
    path.write_text(json.dumps(rates), encoding="utf-8")
    done = application("show", "LM", "--path", path, "--out", tmp_path)
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.output.splitlines()]
    assert ["5", "1", "2.50", "10.00"] in lines
    assert ["5", "2", "-", "16.00"] in lines
    assert ["1", "1.00", "4.00"] in lines, "a V100 is four times as fast as a K80"
    assert (tmp_path / "LM-types.png").is_file()
    for wrong, said in (
        (("LN", "--path", path), "has no rates of it; known: LM"),
        (("LM", "--path", path, "--gpu-type", "t4"), "no rates on"),
    ):
        refused = application("show", *wrong)
        assert refused.exit_code == 2
        assert said in refused.output


def test_no_figure_is_drawn_unless_wanted(tmp_path):
    path = tmp_path / "rates.json"
    path.write_text(json.dumps({"v100": {LM.format(1): {"null": 10.0}}}), encoding="utf-8")
    done = application("show", "LM", "--path", path, "--no-plots", "--out", tmp_path / "figures")
    assert done.exit_code == 0, done.output
    assert "relative" not in done.output
    assert not (tmp_path / "figures").exists()


def test_gavels_table_becomes_pairs_that_are_valid(tmp_path):
    source, target = tmp_path / "throughputs.json", tmp_path / "pairs.csv"
    rows = {ONE: {"null": 10.0, OTHER: [6.0, 3.0]}, OTHER: {"null": 4.0, ONE: [3.0, 6.0]}}
    source.write_text(json.dumps({"v100": rows}), encoding="utf-8")
    done = application("pairs", "import", source, target)
    assert done.exit_code == 0, done.output
    assert "1 pairs on v100" in done.output
    assert "LM,5,ResNet-18,16,0.6,0.75" in target.read_text(encoding="utf-8")
    assert "1 are faster together" in application("pairs", "validate", target).output


def test_the_template_is_valid(tmp_path):
    target = tmp_path / "pairs.csv"
    assert application("pairs", "template", target).exit_code == 0
    assert application("pairs", "validate", target).exit_code == 0
    assert application("pairs", "template", target).exit_code == 2
    drawn = application("pairs", "show", target, "--out", tmp_path)
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "pairs-t4.png").is_file()
    assert application("pairs", "show", target, "--gpu-type", "t5").exit_code == 2


def test_other_files_are_refused(tmp_path):
    source, target = tmp_path / "throughputs.json", tmp_path / "pairs.csv"
    for text, said in (("[]", "does not have the layout"), ("{", "is not JSON"), ("{}", "no pairs")):
        source.write_text(text, encoding="utf-8")
        done = application("pairs", "import", source, target)
        assert done.exit_code == 2
        assert said in done.output
    target.write_text("gpu_type,application\n", encoding="utf-8")
    assert application("pairs", "validate", target).exit_code == 2
