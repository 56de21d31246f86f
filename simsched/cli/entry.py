"""The command's entry point, which handles stops even while simsched loads."""

import gc
import sys

#: Added to the number of the signal in the exit code; Ctrl-C is signal 2.
_STOPPED, _CTRL_C = 128, 2
#: The threshold of garbage collection; Python's default of 700 costs a tenth of a short command's CPU time.
_NEW_OBJECTS = 50_000


def main() -> None:
    """Load and run the command line; exit with 128 and the signal's number on an early stop."""
    gc.set_threshold(_NEW_OBJECTS, *gc.get_threshold()[1:])
    try:
        from simsched.cli.main import main as run

        run()
    except KeyboardInterrupt as stop:
        sys.stderr.write("simsched: interrupted\n")
        sys.exit(_STOPPED + (stop.args or (_CTRL_C,))[0])
