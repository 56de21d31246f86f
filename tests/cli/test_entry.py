"""The command says that it was interrupted even while it is loading."""

import sys
from types import ModuleType

import pytest

from simsched.cli import entry


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
