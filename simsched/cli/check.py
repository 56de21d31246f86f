"""`simsched check`: does a policy keep to the contract?"""

from __future__ import annotations

import contextlib
import re
import sys
from typing import TYPE_CHECKING

import click

from simsched.cli.output import json_option, print_json

if TYPE_CHECKING:
    from simsched.testing.check_policy import Failure

_NOT_CONFORMING = 1


@click.group()
def check() -> None:
    """Check policies of your own."""


@check.command()
@click.argument("name")
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True, help="Random workloads per cluster.")
@json_option
def policy(name: str, seeds: int, as_json: bool) -> None:
    """Run the conformance kit on a policy; the exit code is 1 if it fails a check.

    A failure is shown with the file and line of the policy from which it came, and with `simsched --debug check policy`
    with its traceback.

    NAME is a registered name, package.module:Class or path/to/file.py:Class.
    """
    from simsched.policy import registry
    from simsched.testing import check_policy

    kind = registry.load(name)
    with contextlib.redirect_stdout(sys.stderr):  # what the policy prints does not belong to the results
        failures = check_policy(kind, seeds=seeds)
    debug = click.get_current_context().find_root().params.get("debug")
    if as_json:
        print_json(
            {
                "policy": name,
                "failures": [{"check": one.check, "reason": one.reason, "place": one.place} for one in failures],
            }
        )
    else:
        for same in _by_reason(failures):
            click.echo(f"FAILED {_together(same)}")
            if debug:
                click.echo(same[0].traceback, err=True)
        count = f"{len(failures)} {'check' if len(failures) == 1 else 'checks'} failed"
        click.echo(f"{kind.name}: {count if failures else 'conforms'}")
    if failures:
        click.get_current_context().exit(_NOT_CONFORMING)


def _by_reason(failures: list[Failure]) -> list[list[Failure]]:
    """Put failures of the same place for the same reason together; times, jobs and counts make no other reason."""
    groups: dict[tuple[str, str], list[Failure]] = {}
    for failure in failures:
        groups.setdefault((failure.place, re.sub(r"[0-9]+", "#", failure.reason)), []).append(failure)
    return list(groups.values())


def _together(same: list[Failure]) -> str:
    others = [one.check for one in same[1:]]
    return f"{same[0]}" + (f" (so also: {'; '.join(others)})" if others else "")
