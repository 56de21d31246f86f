"""Where the data that ships with the project lies, in a checkout and in an installed wheel alike."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """Find a shipped data folder: `traces`, `workloads` or `experiments`.

    Raises `FileNotFoundError` where neither the checkout nor the installed package has it.
    """
    for root in (_PACKAGE / "data", _PACKAGE.parent):
        folder = root / name
        if folder.is_dir():
            return folder
    message = f"the data folder '{name}' is missing from this installation of simsched"
    raise FileNotFoundError(message)
