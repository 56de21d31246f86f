"""`simsched data`: published data that validations need and that do not ship."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from simsched.cli.output import json_option, print_json, table
from simsched.errors import InputError

if TYPE_CHECKING:
    from simsched.experiment import PublishedData, PublishedFile

_INCOMPLETE = 1
_folder_option = click.option(
    "--dir",
    "folder",
    default="data",
    show_default=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder with one folder per name.",
)


@click.group()
def data() -> None:
    """List, fetch and check the published data that validations need.

    None of it ships. Each file is fetched from its owner and kept only if its SHA-256 is that of the file that the
    validation used.
    """


@data.command("list")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@json_option
def list_(names: tuple[str, ...], as_json: bool) -> None:
    """List data with their owners and licences; with NAME, list every file with its hash and source."""
    from dataclasses import asdict

    found = _named(names)
    if as_json:
        print_json([asdict(one) for one in found])
    elif names:
        click.echo("\n\n".join(map(_told, found)))
    else:
        rows = [(one.name, _counted(one), one.licence.partition(";")[0], one.what) for one in found]
        click.echo(table(("data", "files", "licence", "what (more: simsched data list NAME)"), rows, left=4))


@data.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_folder_option
def get(names: tuple[str, ...], folder: Path) -> None:
    """Fetch the files of NAME from their owner into DIR/NAME; files already there with the right hash are kept.

    If a file cannot be fetched, the exit code is 1 and the command lists what to download by hand.
    """
    fetched = [_fetched(one, folder / one.name) for one in _named(names)]
    if not all(fetched):
        click.get_current_context().exit(_INCOMPLETE)


@data.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@_folder_option
@json_option
def check(names: tuple[str, ...], folder: Path, as_json: bool) -> None:
    """Compare the files of NAME, or of all data present, with their hashes.

    A file is right, is missing, differs, or has no known hash. The exit code is 1 if one differs, or if a file of NAME
    that can be fetched is missing.
    """
    from simsched.errors import input_error

    found = [one for one in _named(names) if names or (folder / one.name).is_dir()]
    if not found:
        raise input_error(folder, "holds none of the data", "name their folder with --dir, or see `simsched data list`")
    states = {one.name: {file.path: file.state(folder / one.name) for file in one.files} for one in found}
    if as_json:
        print_json(states)
    else:
        for name, files in states.items():
            counts = {state: list(files.values()).count(state) for state in dict.fromkeys(files.values())}
            click.echo(f"{name}: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
            click.echo("".join(f"  {state}: {path}\n" for path, state in files.items() if state != "right"), nl=False)
    wrong = [state == "differs" for files in states.values() for state in files.values()]
    wrong += [states[one.name][file.path] == "missing" for one in found if names for file in one.wanted]
    if any(wrong):
        click.get_current_context().exit(_INCOMPLETE)


def _named(names: tuple[str, ...]) -> list[PublishedData]:
    from simsched.experiment import find_published, published_data

    return [find_published(name) for name in dict.fromkeys(names)] if names else list(published_data().values())


def _counted(one: PublishedData) -> str:
    by_hand = len(one.by_hand)
    return f"{len(one.files)}" + (f", {by_hand} by hand" if by_hand else "")


def _told(one: PublishedData) -> str:
    """Print all details of data."""
    lines = [f"{one.name}: {one.what}", f"owner: {one.owner}", f"licence: {one.licence}"]
    lines += [f"cite: {one.cite}"] if one.cite else []
    lines += [f"needed by: {', '.join(one.needed_by)}"] if one.needed_by else []
    lines += [f"  {file.path}\n    {_source(file)}\n    sha256 {file.sha256 or 'not known'}" for file in one.files]
    return "\n".join(lines + ([f"by hand: {one.how}"] if one.how else []))


def _source(file: PublishedFile) -> str:
    return file.address or "by hand"


def _fetched(one: PublishedData, folder: Path) -> bool:
    """Fetch what is missing; return whether all files are there."""
    missing, reason = [], ""
    for file in one.files:
        state = file.state(folder)
        if state == "differs":
            missing.append(file)
            click.echo(f"simsched: {folder / file.path}: exists but differs; remove it to fetch it again", err=True)
        elif state == "missing" and (file.address is None or reason):
            missing.append(file)
        elif state == "missing":
            try:
                file.fetch(folder)
            except InputError as error:
                missing.append(file)
                click.echo(f"simsched: {error}", err=True)
            except OSError as error:
                missing.append(file)
                said = f"{file.address}: {getattr(error, 'reason', error)}"
                reason = "" if hasattr(error, "code") else said  # the owner's server answered, so other files may exist
                click.echo(f"simsched: {said}" + ("; the other addresses are not tried" if reason else ""), err=True)
    click.echo(f"{folder}: {len(one.files) - len(missing)} of {len(one.files)} files")
    if missing:
        click.echo("To download by hand:", err=True)
        for file in missing:
            click.echo(f"  {folder / file.path}" + (f"  from {file.address}" if file.address else ""), err=True)
        if one.how and any(file.address is None for file in missing):
            click.echo(f"Files without an address: {one.how} ({one.owner}).", err=True)
        click.echo(f"Then: simsched data check {one.name} --dir {folder.parent}", err=True)
    return not {*missing} & {*one.wanted}
