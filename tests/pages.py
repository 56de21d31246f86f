"""The scripts beside the pages, called in this process."""

import contextlib
import io
from types import SimpleNamespace

from docs import data, filled_page


def called(script, *arguments):
    """Call a script; return its exit code and what it said."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        code = script.main(list(map(str, arguments)))
    return SimpleNamespace(exit_code=code, output=output.getvalue())


def verdicts(*arguments):
    """Fill or check pages, or judge ratios."""
    return called(filled_page, *arguments)


def published(*arguments):
    """List, fetch or check published data."""
    return called(data, *arguments)
