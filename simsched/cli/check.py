"""`simsched check`: check whether a policy or an agent meets the contract."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.output import json_option, print_json
from simsched.errors import InputError, Problem

if TYPE_CHECKING:
    from simsched.testing import Failure

_NOT_CONFORMING = 1
#: Seconds for a process to end after its last message.
_END_S = 1.0


@click.group()
def check() -> None:
    """Check your own policies and agents."""


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


@check.command()
@_checking
def policy(**how: Any) -> None:
    """Run the conformance kit on a policy; the exit code is 1 if it fails a check.

    Each failure is shown with its file and line in the policy; `simsched --debug check policy` adds the traceback.

    NAME is a registered name, package.module:Class or path/to/file.py:Class.
    """
    _show("policy", **how)


@check.command()
@_checking
def agent(**how: Any) -> None:
    """Run the conformance kit on agents, which pick the batches of jobs; the exit code is 1 if they fail a check.

    NAME is a registered name, package.module:Class or path/to/file.py:Class, as in the key `agent` of a policy.
    """
    _show("agent", **how)


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


def _checked(noun: str, name: str, seeds: int) -> tuple[str, list[Failure]]:
    from simsched.agent import registry as agents
    from simsched.policy import registry as policies
    from simsched.testing import check_agent, check_policy

    kind = (agents if noun == "agent" else policies).load(name)
    kit: Callable[..., list[Failure]] = check_agent if noun == "agent" else check_policy
    with contextlib.redirect_stdout(sys.stderr):  # keeps its output out of the results
        return str(kind.name), kit(kind, seeds=seeds)


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
