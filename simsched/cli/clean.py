"""`simsched clean`: remove the cells that no run uses any more."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from simsched.errors import input_error


@click.command()
@click.argument("folder", metavar="DIR", default="results", type=click.Path(path_type=Path))
@click.option("--remove", is_flag=True, help="Remove them; without it they are only listed.")
def clean(folder: Path, remove: bool) -> None:
    """List the cells below DIR that no run uses, such as those of settings given up since, or remove them.

    DIR is the folder of a run or of several. A cell is used if the run.json beside it names it.
    """
    runs = [folder] if (folder / "cells").is_dir() else sorted(path.parent for path in folder.glob("*/cells"))
    if not runs:
        raise input_error(
            folder, "holds no results", "name the folder that `simsched run` made, or that given as --out"
        )
    unused = [cell for run in runs for cell in _unused(run)]
    size = sum(file.stat().st_size for cell in unused for file in cell.rglob("*") if file.is_file())
    for cell in unused:
        click.echo(cell)
        if remove:
            shutil.rmtree(cell)
    what = "removed" if remove else "unused; remove them with --remove"
    click.echo(f"{len(unused)} cells {what} ({size / 1e6:.1f} MB)" if unused else "Every cell is in use.")


def _unused(run: Path) -> list[Path]:
    """Return the complete cells of a run that its index does not name; without an index all are kept."""
    from simsched.results.integrity import MANIFEST_FILE
    from simsched.results.reader import RUN_FILE, read_json

    if not (run / RUN_FILE).is_file():
        return []
    content = read_json(run / RUN_FILE)
    used = {str(entry.get("cell")) for entry in content.get("cells", []) if isinstance(entry, dict)}
    fairness = content.get("fairness")
    if fairness:  # solo runs may be among the cells that are not named
        return []
    return [cell for cell in sorted((run / "cells").iterdir()) if cell.name not in used
            and (cell / MANIFEST_FILE).is_file()]  # fmt: skip
