"""`simsched check` and `simsched learn`: whether own code meets its contract, and a policy that is learnt."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.new import class_name, refuse_to_overwrite
from simsched.cli.options import ABOVE_ZERO, COUNT, EXPERIMENT, FORCE, JSON, OVERRIDES, arg, command, opt
from simsched.cli.output import debugging, print_json
from simsched.errors import InputError, Problem, extra, input_error
from simsched.files import write_text
from simsched.words import counted

if TYPE_CHECKING:
    from simsched.plugins import Kind
    from simsched.testing import Failure

_NOT_CONFORMING = 1
#: Seconds for a process to end after its last message.
_END_S = 1.0


@click.group()
def check() -> None:
    """Check your own policies, agents and processes."""


def _show(noun: str, name: str, seeds: int, timeout: float, isolated: bool, in_process: bool, as_json: bool) -> None:
    if isolated and noun != "policy":
        raise click.UsageError("only policies run behind a wall")
    what = (noun, name, seeds, isolated)
    shown, failures = _checked(*what) if in_process else _checked_apart(*what, timeout)
    if as_json:
        rows = [{"check": one.check, "reason": one.reason, "place": one.place} for one in failures]
        print_json({noun: name, "failures": rows})
    else:
        for same in _by_reason(failures):
            others = [one.check for one in same[1:]]
            click.echo(f"FAILED {same[0]}" + (f" (so also: {'; '.join(others)})" if others else ""))
            if debugging():
                click.echo(same[0].traceback, err=True)
        failed = f"{counted(len(failures), 'check')} failed"
        click.echo(f"{shown}: {failed if failures else 'conforms'}")
    if failures:
        click.get_current_context().exit(_NOT_CONFORMING)


def _add_check(noun: str, what: str) -> None:
    def run(
        name: str = arg(),
        *,
        seeds: int = opt("Random workloads per cluster.", type=COUNT, default=3),
        timeout: float = opt(
            "Time after which the process of the kit is killed.", type=ABOVE_ZERO, metavar="SECONDS", default=600.0
        ),
        isolated: bool = opt("Run a policy behind a wall (docs/external.md)."),
        in_process: bool = opt("Run in this process, for a debugger; without a time limit."),
        as_json: bool = JSON,
    ) -> None:
        _show(noun, name, seeds, timeout, isolated, in_process, as_json)

    about = f"""Run the conformance kit on {what}; the exit code is 1 if a check fails.

        Each failure is shown with its file and line; `simsched --debug check {noun}` adds the traceback.

        NAME is a registered name, package.module:NAME or path/to/file.py:NAME."""
    command(check, noun, help=about)(run)


_add_check("policy", "a policy")
_add_check("agent", "agents, which pick the batches of jobs")
_add_check("process", "a process, which runs beside the cluster")


def _checked(noun: str, name: str, seeds: int, isolated: bool) -> tuple[str, list[Failure]]:
    from simsched.agent import AGENTS
    from simsched.applications import ApplicationsOptions, catalogue
    from simsched.engine import PROCESSES
    from simsched.experiment import walled_maker
    from simsched.policy import POLICIES
    from simsched.testing import check_agent, check_policy, check_process

    kits: dict[str, tuple[Kind, Callable[..., list[Failure]]]] = {
        "policy": (POLICIES, check_policy),
        "agent": (AGENTS, check_agent),
        "process": (PROCESSES, partial(check_process, applications=catalogue(ApplicationsOptions()))),
    }
    kind, kit = kits[noun]
    if isolated:
        return name, check_policy(walled_maker(name), seeds=seeds)
    found = kind.load(name)
    with contextlib.redirect_stdout(sys.stderr):  # keeps its output out of the results
        return str(getattr(found, "name", found.__name__)), kit(found, seeds=seeds)


def _checked_apart(noun: str, name: str, seeds: int, isolated: bool, timeout_s: float) -> tuple[str, list[Failure]]:
    """Run the kit in a separate process; a crash or timeout is a failure."""
    from simsched.experiment.running import LONGEST_MESSAGE, start
    from simsched.testing import Failure

    process, pipe = start(_serve_check, noun, name, seeds, isolated)
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


def _serve_check(pipe: Connection, noun: str, name: str, seeds: int, isolated: bool) -> None:
    said: dict[str, Any] = {"name": name, "failures": [], "problems": []}
    try:
        said["name"], failures = _checked(noun, name, seeds, isolated)
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


#: Characters of the longest bar of the curve.
_BAR = 40


@command()
def learn(
    experiment: str = EXPERIMENT,
    overrides: tuple[str, ...] = OVERRIDES,
    *,
    out: Path = opt("The policy file, whose name gives that of the class.", default=Path("learnt.py")),
    feature: tuple[str, ...] = opt("Weigh this feature instead of the usual ones. Repeatable.", metavar="NAME"),
    seeds: str = opt("Seeds of the workloads.", metavar="FIRST-LAST", default="101-124"),
    held_out: str = opt(
        "Seeds of workloads that show after each generation how well unseen ones go.",
        metavar="FIRST-LAST",
        default="201-206",
    ),
    generations: int = opt(type=COUNT, default=12),
    population: int = opt("Candidates per generation.", type=click.IntRange(min=4), default=24),
    episodes: int = opt("Workloads per candidate.", type=COUNT, default=6),
    workers: int = opt(None, "-j", "--workers", type=COUNT, default=1),
    force: bool = FORCE,
) -> None:
    """Learn an order of jobs in simulations of EXPERIMENT, and write it as a policy.

    The order follows a weighted sum of features of jobs: requested GPUs, age, attained service, whether it runs, and
    its application. Training minimises the mean JCT on workloads of the given seeds; the curve on stderr tells how long
    jobs take on held-out ones. Evaluate the policy on yet others. The experiment's policies are ignored. Needs the
    extra `gym`.
    """
    if find_spec("gymnasium") is None:
        raise input_error("learn", "the package 'gymnasium' is not installed", extra("gym"))
    from simsched.gym import Evolution, evolve, policy_text

    module = out.name.removesuffix(".py")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", module) or out.suffix != ".py":
        raise input_error("--out", f"'{out.name}' cannot name a policy", "use small letters and _, as in learnt.py")
    refuse_to_overwrite(out, force)
    drawn, unseen = _range("--seeds", seeds), _range("--held-out", held_out)
    search = Evolution(generations, population, episodes, drawn, workers, unseen)
    longest = 0.0

    def heard(generation: int, hours: float, held_out_hours: float) -> None:
        nonlocal longest
        longest = max(longest, held_out_hours)
        bar = "#" * round(_BAR * held_out_hours / longest)
        click.echo(
            f"generation {generation} of {generations}: mean JCT {hours:.3f} h at best on its own workloads, "
            f"{held_out_hours:.3f} h held out {bar}",
            err=True,
        )

    weights = evolve(experiment, changes_of(overrides), features=feature, search=search, heard=heard)
    write_text(out, policy_text(module.replace("_", "-"), weights, experiment, search))
    policies = f'[{{name: "{out}:{class_name(module)}"}}, {{name: fifo}}]'
    click.echo(f"{out}: try `simsched run {experiment} -o 'policies={policies}'`")


def _range(option: str, seeds: str) -> range:
    ends = re.fullmatch(r"(\d{1,9})-(\d{1,9})", seeds)
    if ends is None:
        raise input_error(option, f"is '{seeds}'", "give the first and the last, as in 101-124")
    return range(int(ends[1]), int(ends[2]) + 1)


def changes_of(overrides: tuple[str, ...]) -> dict[str, Any]:
    """Convert `key=value` overrides to the changes of the Python API."""
    from simsched.documents import parse_value

    return {key: parse_value(value, f"-o {key}") for key, _, value in (one.partition("=") for one in overrides)}
