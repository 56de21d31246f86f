"""Locates the shipped data, in a checkout or an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """Return `traces`, `workloads`, `experiments` or `leagues`; raises `FileNotFoundError` if it is not shipped."""
    for root in (_PACKAGE / "data", _PACKAGE.parent):
        folder = root / name
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"the data folder '{name}' is missing from this installation of simsched")
