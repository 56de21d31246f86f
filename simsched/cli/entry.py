"""The command's entry point, which handles Ctrl-C even while simsched loads."""

import sys

_INTERRUPTED = 130


def main() -> None:
    """Load and run the command line; exit with 130 on an early interrupt."""
    try:
        from simsched.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("simsched: interrupted\n")
        sys.exit(_INTERRUPTED)
