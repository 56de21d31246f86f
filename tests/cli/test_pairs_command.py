"""Tables of pairs on the command line."""

import json

from click.testing import CliRunner

from simsched.cli.main import cli

ONE, OTHER = "('LM (batch size 5)', 1)", "('ResNet-18 (batch size 16)', 1)"


def simsched(*arguments):
    return CliRunner().invoke(cli, ["application", "pairs", *map(str, arguments)], prog_name="simsched")


def test_gavels_table_becomes_pairs_that_are_valid(tmp_path):
    source, target = tmp_path / "throughputs.json", tmp_path / "pairs.csv"
    rows = {ONE: {"null": 10.0, OTHER: [6.0, 3.0]}, OTHER: {"null": 4.0, ONE: [3.0, 6.0]}}
    source.write_text(json.dumps({"v100": rows}), encoding="utf-8")
    done = simsched("import", source, target)
    assert done.exit_code == 0, done.output
    assert "1 pairs on v100" in done.output
    assert "LM,5,ResNet-18,16,0.6,0.75" in target.read_text(encoding="utf-8")
    assert "1 are faster together" in simsched("validate", target).output


def test_the_template_is_valid(tmp_path):
    target = tmp_path / "pairs.csv"
    assert simsched("template", target).exit_code == 0
    assert simsched("validate", target).exit_code == 0
    assert simsched("template", target).exit_code == 2
    drawn = simsched("show", target, "--out", tmp_path)
    assert drawn.exit_code == 0, drawn.output
    assert (tmp_path / "pairs-t4.png").is_file()
    assert simsched("show", target, "--gpu-type", "t5").exit_code == 2


def test_other_files_are_refused(tmp_path):
    source, target = tmp_path / "throughputs.json", tmp_path / "pairs.csv"
    for text, said in (("[]", "does not have the layout"), ("{", "is not JSON"), ("{}", "no pairs")):
        source.write_text(text, encoding="utf-8")
        done = simsched("import", source, target)
        assert done.exit_code == 2
        assert said in done.output
    target.write_text("gpu_type,application\n", encoding="utf-8")
    assert simsched("validate", target).exit_code == 2
