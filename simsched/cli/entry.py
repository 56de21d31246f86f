"""Where the command begins: before anything large is loaded, so that Ctrl-C leaves no traceback even then."""

import sys

_INTERRUPTED = 130


def main() -> None:
    """Load and run the command line; exit with 130 where it is interrupted before it can say so itself."""
    try:
        from simsched.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("simsched: interrupted\n")
        sys.exit(_INTERRUPTED)
