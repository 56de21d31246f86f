"""Commands whose parameters are their options: an annotation has the type and the help, the signature the default."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import datetime
from functools import wraps
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import click
from click.shell_completion import CompletionItem

#: The range of numbers of things.
COUNT = click.IntRange(min=1)
ABOVE_ZERO = click.FloatRange(min=0, min_open=True)
NOT_NEGATIVE = click.FloatRange(min=0)


@dataclass(frozen=True)
class Marker:
    """What a signature says of a parameter of a command, as `arg` and `opt` make it."""

    kind: type[click.Parameter]
    flags: tuple[str, ...]
    how: Mapping[str, Any]
    switches: Mapping[str, tuple[str, str]]


def arg(metavar: str | None = None, **how: Any) -> Any:
    """Declare an argument; other keys, such as its `default`, are click's."""
    return Marker(click.Argument, (), {"metavar": metavar, **how}, {})


def opt(
    help_text: str | None = None, *flags: str, switches: Mapping[str, tuple[str, str]] | None = None, **how: Any
) -> Any:
    """Declare an option, by default named as its parameter; other keys, such as its `default`, are click's.

    Each of the `switches` is a flag that gives the parameter a value, with its help. Without a default, a flag is off,
    an option that may be None is None, and another is required.
    """
    return Marker(click.Option, flags, {"help": help_text, **how}, switches or {})


def opt_field(default: Any, help_text: str | None, *flags: str, **how: Any) -> Any:
    """Declare a field of a dataclass that is an option, as `opt` does."""
    return field(default=default, metadata={"option": opt(help_text, *flags, default=default, **how)})


def command(
    group: click.Group | None = None, name: str | None = None, **how: Any
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function, in a group or alone.

    The defaults of its parameters are made by `arg` and `opt`. A parameter may also be a dataclass with fields made by
    `opt_field`: the command then has these options, and passes the object.
    """

    def made(function: Callable[..., None]) -> click.Command:
        hints = get_type_hints(function)
        parts: dict[str, Any] = {key: hint for key, hint in hints.items() if is_dataclass(hint)}
        params: list[click.Parameter] = []
        for key, parameter in inspect.signature(function).parameters.items():
            params += _of_fields(parts[key]) if key in parts else _params(key, hints[key], parameter.default)

        @wraps(function)
        def run(**values: Any) -> None:
            objects = {
                key: part(**{one.name: values.pop(one.name) for one in fields(part)}) for key, part in parts.items()
            }
            function(**values, **objects)

        return (group or click).command(name, params=params, **how)(run)

    return made


def _of_fields(part: Any) -> Iterator[click.Parameter]:
    hints = get_type_hints(part)
    for one in fields(part):
        yield from _params(one.name, hints[one.name], one.metadata["option"])


def _params(name: str, kind: Any, marker: Marker) -> Iterator[click.Parameter]:
    optional = NoneType in get_args(kind)
    if optional:
        kind = next(one for one in get_args(kind) if one is not NoneType)
    several = get_origin(kind) is tuple
    kind = get_args(kind)[0] if several else kind
    how: dict[str, Any] = {"type": _click_type(kind), **marker.how}
    if several or kind is bool or optional:
        how = {"default": () if several else False if kind is bool else None, **how}
    how.setdefault("required", "default" not in how)
    if marker.kind is click.Argument:
        yield click.Argument([name], nargs=-1 if several else None, **how)
        return
    how.setdefault("show_default", how.get("default") not in (None, False, "", ()))
    how.setdefault("metavar", {Path: "FILE", int: "N"}.get(kind))
    if how["help"] or not marker.switches:
        flags = marker.flags or (f"--{name.replace('_', '-')}",)
        switch: dict[str, Any] = {"is_flag": True, "flag_value": True} if kind is bool else {}
        yield click.Option([*flags, name], multiple=several, **switch, **how)
    for flag, (value, text) in marker.switches.items():
        yield click.Option([flag, name], flag_value=value, help=text)


def _click_type(kind: Any) -> Any:
    """Return click's type of an annotation."""
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    types = {Path: click.Path(path_type=Path), datetime: click.DateTime()}
    return types.get(kind, kind)


def complete_experiment(context: click.Context, argument: click.Parameter, begun: str) -> list[CompletionItem]:
    """Complete shipped experiments and files."""
    from simsched.experiment import shipped_experiments

    names = [name for name in shipped_experiments() if name.startswith(begun)]
    return [CompletionItem(begun, type="file"), *(CompletionItem(name) for name in names)]


JSON = opt("Print machine-readable JSON.", "--json")
FORCE = opt("Overwrite an existing file.")
NO_PLOTS = opt("Draw no figures.")
EXPERIMENT = arg(shell_complete=complete_experiment)
RUN_FOLDER = arg("RUN")
SEED = opt(type=click.IntRange(min=0), default=1)
WORKERS = opt("Processes. [default: all processors]", "--workers", "-j", type=COUNT)
OVERRIDES = opt(
    "Change a key, e.g. -o workload.jobs=20 or -o policies.pollux.params.fairness=1. Repeatable.",
    "-o", "--override", metavar="KEY=VALUE",
)  # fmt: skip
METRICS = opt(
    "Show this metric (see `simsched list metrics`; makespan_h asks for hours). Repeatable.",
    "-m", "--metric", metavar="NAME",
)  # fmt: skip
LAYOUT = opt(
    switches={
        "--csv": ("csv", "Print as CSV, one row per metric."),
        "--markdown": ("markdown", "Print as Markdown."),
        "--latex": ("latex", "Print as LaTeX (booktabs)."),
    }
)


def figures(folder: str) -> Any:
    """Declare the option for the folder of figures, with its default."""
    return opt("Folder for the figures.", "--out", metavar="DIR", default=Path(folder))
