"""`simsched application show` of applications that know several GPU types."""

import json

import pytest
from click.testing import CliRunner

from simsched.cli.main import cli

pytestmark = pytest.mark.usefixtures("in_this_process")

LM = "('LM (batch size 5)', {})"


def show(*arguments):
    return CliRunner().invoke(cli, ["application", "show", *map(str, arguments)], prog_name="simsched")


def test_published_types_stand_side_by_side():
    done = show("cifar10", "--extra-types", "sia", "--no-plots")
    assert done.exit_code == 0, done.output
    assert [line.split()[4] for line in done.output.splitlines() if line.startswith("Throughput in")] == [
        "a100,", "rtx,", "t4,",
    ]  # fmt: skip
    ratios = done.output.partition("Speed relative to a100")[2].splitlines()
    assert ratios[1].split() == ["GPUs", "a100", "rtx", "t4"]
    assert ratios[3].split() == ["1", "1.00", "0.38", "0.17"]
    alone = show("cifar10", "--extra-types", "sia", "--gpu-type", "rtx", "--no-plots")
    assert "on t4" not in alone.output
    assert "on rtx" in alone.output
    wrong = show("cifar10", "--extra-types", "sia", "--gpu-type", "rxt", "--no-plots")
    assert wrong.exit_code == 2
    assert "did you mean 'rtx'?" in wrong.output


def test_rates_by_type_and_number_of_gpus_are_shown_and_drawn(tmp_path):
    rates = {"v100": {LM.format(1): {"null": 10.0}, LM.format(2): {"null": 16.0}}, "k80": {LM.format(1): {"null": 2.5}}}
    path = tmp_path / "rates.json"
    path.write_text(json.dumps(rates), encoding="utf-8")
    done = show("LM", "--path", path, "--out", tmp_path)
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
        refused = show(*wrong)
        assert refused.exit_code == 2
        assert said in refused.output


@pytest.mark.parametrize("name", ["LM"])
def test_no_figure_is_drawn_unless_wanted(tmp_path, name):
    path = tmp_path / "rates.json"
    path.write_text(json.dumps({"v100": {LM.format(1): {"null": 10.0}}}), encoding="utf-8")
    done = show(name, "--path", path, "--no-plots", "--out", tmp_path / "figures")
    assert done.exit_code == 0, done.output
    assert "relative" not in done.output
    assert not (tmp_path / "figures").exists()
