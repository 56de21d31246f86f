"""Asking for help must not cost the import of anything heavy."""

import subprocess
import sys

import click
import pytest

HEAVY = ("numpy", "pandas", "numba", "scipy", "matplotlib", "pyarrow", "pydantic", "yaml", "rich")
SCRIPT = """
import sys
from simsched.cli.main import cli
try:
    cli({arguments!r}, prog_name="simsched")
except SystemExit as end:
    assert end.code == 0, end.code
print("heavy:", [name for name in {heavy!r} if name in sys.modules])
"""


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["trace", "generate", "--help"], ["--version"]])
def test_help_imports_nothing_heavy(arguments):
    script = SCRIPT.format(arguments=arguments, heavy=HEAVY)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_every_command_and_option_has_help():
    from simsched.cli.main import cli

    context = click.Context(cli)

    def walk(command):
        assert command.help, command.name
        yield command
        for name in command.list_commands(context) if isinstance(command, click.Group) else ():
            yield from walk(command.get_command(context, name))

    names = {command.name for command in walk(cli)}
    assert {"run", "validate", "schema", "list", "show", "compare", "validate-run", "plot", "fit", "policy"} <= names
