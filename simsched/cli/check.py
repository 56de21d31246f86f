"""`simsched check`: check whether a policy, an agent or a process meets the contract."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.output import json_option, print_json
from simsched.errors import InputError, Problem

if TYPE_CHECKING:
    from simsched.plugins import Kind
    from simsched.testing import Failure

_NOT_CONFORMING = 1
#: Seconds for a process to end after its last message.
_END_S = 1.0


@click.group()
def check() -> None:
    """Check your own policies, agents and processes."""


def _checking(command: Callable[..., None]) -> Callable[..., None]:
    """Add the name and the options of a check."""
    options = (
        click.argument("name"),
        click.option(
            "--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Random workloads per cluster."
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            default=600.0,
            show_default=True,
            metavar="SECONDS",
            help="Time after which the process of the kit is killed.",
        ),
        click.option("--in-process", is_flag=True, help="Run in this process, for a debugger; without a time limit."),
        json_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


def _show(noun: str, name: str, seeds: int, timeout: float, in_process: bool, as_json: bool) -> None:
    shown, failures = _checked(noun, name, seeds) if in_process else _checked_apart(noun, name, seeds, timeout)
    debug = click.get_current_context().find_root().params.get("debug")
    if as_json:
        print_json(
            {
                noun: name,
                "failures": [{"check": one.check, "reason": one.reason, "place": one.place} for one in failures],
            }
        )
    else:
        for same in _by_reason(failures):
            click.echo(f"FAILED {_together(same)}")
            if debug:
                click.echo(same[0].traceback, err=True)
        count = f"{len(failures)} {'check' if len(failures) == 1 else 'checks'} failed"
        click.echo(f"{shown}: {count if failures else 'conforms'}")
    if failures:
        click.get_current_context().exit(_NOT_CONFORMING)


for _noun, _what in (
    ("policy", "a policy"),
    ("agent", "agents, which pick the batches of jobs"),
    ("process", "a process, which runs beside the cluster"),
):
    check.command(
        _noun,
        help=f"""Run the conformance kit on {_what}; the exit code is 1 if a check fails.

        Each failure is shown with its file and line; `simsched --debug check {_noun}` adds the traceback.

        NAME is a registered name, package.module:NAME or path/to/file.py:NAME.""",
    )(_checking(partial(_show, _noun)))


def _checked(noun: str, name: str, seeds: int) -> tuple[str, list[Failure]]:
    from simsched.agent import AGENTS
    from simsched.applications import ApplicationsOptions, catalogue
    from simsched.engine import PROCESSES
    from simsched.policy import POLICIES
    from simsched.testing import check_agent, check_policy, check_process

    kits: dict[str, tuple[Kind, Callable[..., list[Failure]]]] = {
        "policy": (POLICIES, check_policy),
        "agent": (AGENTS, check_agent),
        "process": (PROCESSES, partial(check_process, applications=catalogue(ApplicationsOptions()))),
    }
    kind, kit = kits[noun]
    found = kind.load(name)
    with contextlib.redirect_stdout(sys.stderr):  # keeps its output out of the results
        return str(getattr(found, "name", found.__name__)), kit(found, seeds=seeds)


def _checked_apart(noun: str, name: str, seeds: int, timeout_s: float) -> tuple[str, list[Failure]]:
    """Run the kit in a separate process; a crash or timeout is a failure."""
    from simsched.experiment.running import LONGEST_MESSAGE, start
    from simsched.testing import Failure

    process, pipe = start(_serve_check, noun, name, seeds)
    said = None
    try:
        with contextlib.suppress(EOFError, OSError, ValueError):
            if pipe.poll(timeout_s):
                said = json.loads(pipe.recv_bytes(LONGEST_MESSAGE))
                problems = [Problem(**one) for one in said["problems"]]
        process.join(_END_S)
        lasts = process.exitcode is None
    finally:
        process.kill()
        process.join()
        pipe.close()
    if said is None:
        how = f"it ran for longer than {timeout_s:g} s" if lasts else "it ended the process"
        return name, [Failure("the kit runs to its end", how)]
    if problems:
        raise InputError(*problems)
    return said["name"], [Failure(**one) for one in said["failures"]]


def _serve_check(pipe: Connection, noun: str, name: str, seeds: int) -> None:
    said: dict[str, Any] = {"name": name, "failures": [], "problems": []}
    try:
        said["name"], failures = _checked(noun, name, seeds)
        said["failures"] = [asdict(failure) for failure in failures]
    except InputError as error:
        said["problems"] = [asdict(problem) for problem in error.problems]
    pipe.send_bytes(json.dumps(said).encode("ascii"))


def _by_reason(failures: list[Failure]) -> list[list[Failure]]:
    """Group failures by place and reason, ignoring times, jobs and counts."""
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        groups.setdefault((failure.place, re.sub(r"[0-9]+", "#", failure.reason)), []).append(failure)
    return list(groups.values())


def _together(same: list[Failure]) -> str:
    others = [one.check for one in same[1:]]
    return f"{same[0]}" + (f" (so also: {'; '.join(others)})" if others else "")
