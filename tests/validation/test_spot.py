"""Published costs of spot policies, row by row, and the command that compares them."""

import pytest

from tests.validation.spot import main


@pytest.mark.parametrize("name", ["deadline_sensitivity.csv", "v100.csv"])
def test_every_published_cost_comes_out(shared, name, capsys):
    assert main([str(shared / "spot" / name), "--data", str(shared / "spot")]) == 0, capsys.readouterr().out


def test_a_row_that_differs_and_a_file_without_rows_are_told(shared, tmp_path, capsys):
    lines = (shared / "spot" / "v100.csv").read_text().splitlines(keepends=True)
    row = next(line for line in lines if line.startswith("up_s,"))
    wrong = tmp_path / "wrong.csv"
    wrong.write_text(lines[0] + row.replace("44.529464", "44.529564"))
    assert main([str(wrong), "--data", str(shared / "spot")]) == 1
    assert "0 of 1 equal" in capsys.readouterr().out
    wrong.write_text(lines[0])
    assert main([str(wrong), "--data", str(shared / "spot")]) == 1
