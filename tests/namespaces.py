"""Commands in a user namespace of their own, where folders can be read-only even for root."""

import subprocess
from collections.abc import Sequence

import pytest


def inside_namespace(script: str, *arguments: object) -> Sequence[str]:
    """Return what goes before a command so that `script`, with `arguments` and the command as its own, begins it.

    Skips the test where user namespaces are not allowed.
    """
    inside = ["unshare", "-Urm", "sh", "-c", script, "sh", *map(str, arguments)]
    try:
        works = subprocess.run([*inside, "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        works = False
    if not works:
        pytest.skip("user namespaces are not allowed here")
    return inside
