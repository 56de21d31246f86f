"""The command's entry point, which handles Ctrl-C even while simsched loads."""

import gc
import sys

_INTERRUPTED = 130
#: New objects after which Python looks for unreachable ones; with its 700 that is a tenth of a short command's CPU.
_NEW_OBJECTS = 50_000


def main() -> None:
    """Load and run the command line; exit with 130 on an early interrupt."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    try:
        from simsched.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("simsched: interrupted\n")
        sys.exit(_INTERRUPTED)
