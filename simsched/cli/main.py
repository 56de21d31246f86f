"""The command group and its error handling."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, TextIO

import click

from simsched.errors import InputError, InputWarning, nearest
from simsched.outlets import SafeStream
from simsched.stops import end_at_stops, exit_code_of, ignore_stops
from simsched.threads import memory_given_back, one_thread_each
from simsched.version import __version__

_INPUT_IS_WRONG = 2
_RUN_FAILED = 1
_PIPE_CLOSED = 141
#: More characters than the first sentence of any help.
_WHOLE = 1000
_ARGUMENTS = "simsched.arguments"
#: The sections of `--help`: each command with its module, which is imported on demand.
SECTIONS: Mapping[str, Mapping[str, str]] = {
    "Start": {
        "run": "run", "new": "new", "validate": "output", "list": "show", "show": "show", "report": "report",
    },
    "Look closer": {"plot": "report", "compare": "compare", "why": "why", "step": "why", "export": "report"},
    "My cluster": {"calibrate": "gate", "what-if": "what_if", "capacity": "capacity", "forecast": "forecast",
                   "admit": "admit", "anonymise": "admit"},
    "My policy": {"check": "check", "learn": "check", "league": "league", "score": "league", "bound": "bound"},
    "Jobs and models": {"trace": "trace", "workload": "trace", "application": "application", "pack": "pack"},
    "Upkeep": {"clean": "clean", "verify": "clean", "schema": "output"},
}  # fmt: skip
COMMANDS = {name: module for section in SECTIONS.values() for name, module in section.items()}
#: What replaced the former commands.
_RENAMED = {
    "compare-runs": "compare RUN OTHER",
    "validate-run": "compare RUN --expected CSV",
    "plan": "compare RUN --plan-seeds",
    "explain": "why RUN [--workload NAME]",
}


class SimschedGroup(click.Group):
    """Converts errors to messages and exit codes, unless `--debug`, and escapes names in all output."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List the commands by section."""
        return list(COMMANDS)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section; help lines are not cut."""
        width = max(map(len, COMMANDS))  # so that the sections line up
        for title, names in SECTIONS.items():
            commands = [(name, self.get_command(ctx, name)) for name in names]
            lines = [(name.ljust(width), command.get_short_help_str(_WHOLE)) for name, command in commands if command]
            with formatter.section(title):
                formatter.write_dl(lines)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; a former name raises an error that says the new one."""
        if args and args[0] in _RENAMED:
            raise click.UsageError(f"'{args[0]}' is now `simsched {_RENAMED[args[0]]}`.")
        if args and args[0] not in COMMANDS:
            raise click.UsageError(_unknown("command", args[0], COMMANDS), ctx)
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module = vars(import_module(f"simsched.cli.{COMMANDS[cmd_name]}"))
        return next(one for one in module.values() if isinstance(one, click.Command) and one.name == cmd_name)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the options before a command; the rest is kept for hints."""
        ctx.meta[_ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def main(self, *args: Any, **how: Any) -> Any:
        """Run a command."""
        with contextlib.ExitStack() as streams:
            if sys.stdout is not None:
                streams.enter_context(contextlib.redirect_stdout(_safe(sys.stdout)))
            if sys.stderr is not None:
                streams.enter_context(contextlib.redirect_stderr(_safe(sys.stderr)))
            return super().main(*args, **how)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; exit with 2 for bad input, 1 for a failed run, 128 and its number after a signal."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("default", InputWarning)
                warnings.showwarning = _printing(warnings.showwarning)
                return super().invoke(ctx)
        except click.MissingParameter as error:  # its list of choices begins with tabs, which names may not hold
            raise click.UsageError(error.format_message().expandtabs(2), error.ctx) from None
        except click.NoSuchOption as error:
            raise click.UsageError(_no_option(error, ctx.meta[_ARGUMENTS]), error.ctx) from None
        except click.BadParameter as error:
            choices = getattr(getattr(error.param, "type", None), "choices", ())
            given = next((one for one in ctx.meta[_ARGUMENTS] if f"'{one}'" in error.message), None)
            if choices and given is not None:
                raise click.BadParameter(_unknown("choice", given, choices), error.ctx, error.param) from None
            raise
        except (click.ClickException, click.exceptions.Exit):
            raise
        except (KeyboardInterrupt, Exception) as error:
            if code := exit_code_of(error):
                ignore_stops()
                click.echo("simsched: interrupted; finished work is kept", err=True)
                ctx.exit(code)
            if isinstance(error, BrokenPipeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # no error at exit, when Python flushes
                ctx.exit(_PIPE_CLOSED)
            if isinstance(error, click.Abort) or ctx.params.get("debug"):
                raise
            ctx.exit(_report(error))


def _unknown(kind: str, name: str, known: Iterable[str]) -> str:
    remedy = nearest(name, known)
    return f"there is no {kind} '{name}'; {remedy}"


def _no_option(error: click.NoSuchOption, given: list[str]) -> str:
    """Hint at the key of the experiment that an unknown option names, or else at a near option."""
    name, params = error.option_name, [] if error.ctx is None else error.ctx.command.params
    key = _key_named(name.lstrip("-").replace("-", "_")) if any(one.name == "overrides" for one in params) else ""
    if key:
        after = " ".join(given).partition(name)[2].lstrip("= ").split()
        value = after[0] if after and after[0][0] != "-" else "VALUE"
        return f"there is no option '{name}'; it is a key of the experiment: -o {key}={value}"
    return _unknown("option", name, [one for param in params for one in param.opts if one[:2] == "--"])


def _key_named(name: str) -> str:
    """Return the key of an experiment with a name, at the top or in a section; empty if there is none."""
    from simsched.experiment import ExperimentSpec

    found = {
        inner: f"{section}.{inner}"
        for section, field in reversed(ExperimentSpec.model_fields.items())
        for inner in getattr(field.annotation, "model_fields", ())
    }
    return name if name in ExperimentSpec.model_fields else found.get(name, "")


def _printing(usual: Callable[..., None]) -> Callable[..., None]:
    """Return a `warnings.showwarning` that prints `InputWarning` like other messages."""

    def show(message: Warning | str, category: type[Warning], *rest: Any, **more: Any) -> None:
        if issubclass(category, InputWarning):
            click.echo(f"simsched: {message}", err=True)
        else:
            usual(message, category, *rest, **more)

    return show


def _safe(stream: TextIO) -> Any:
    return stream if isinstance(stream, SafeStream) else SafeStream(stream)


def _report(error: BaseException) -> int:
    """Tell an error on stderr, and return the exit code."""
    from simsched.engine import EngineError

    lines = [str(error)]
    if isinstance(error, InputError):
        lines = [*map(str, error.problems)]
    elif isinstance(error, OSError) and error.errno is not None:
        lines = [f"{f'{error.filename}: ' if error.filename else ''}{error.strerror}"]
    elif isinstance(error, MemoryError):
        lines = ["out of memory"]
    elif not isinstance(error, EngineError):
        report = "please report this with the output of 'simsched --debug ...'"
        lines = [f"internal error: {type(error).__name__}: {error}", report]
    for line in lines:
        click.echo(f"simsched: {line}", err=True)
    return _INPUT_IS_WRONG if isinstance(error, InputError) else _RUN_FAILED


@click.group(cls=SimschedGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="simsched")
@click.option("--debug", is_flag=True, help="Show tracebacks of errors.")
def cli(debug: bool) -> None:
    """Simulate deep-learning GPU clusters and compare their schedulers.

    Start with `simsched run quickstart`. Results go to stdout, progress and messages to stderr.
    """


def main() -> None:
    """Run the command line."""
    one_thread_each()
    memory_given_back()
    end_at_stops()
    try:
        cli(prog_name="simsched")
    finally:
        ignore_stops()  # so that nothing of what ends the process is cut off
