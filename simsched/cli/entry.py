"""The command's entry point, which handles Ctrl-C even while simsched loads."""

import gc
import sys

_INTERRUPTED = 130
#: The threshold of garbage collection; Python's default of 700 costs a tenth of a short command's CPU time.
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
