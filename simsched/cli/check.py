"""`simsched check`: does a policy keep to the contract?"""

from __future__ import annotations

import contextlib
import sys

import click

from simsched.cli.output import json_option, print_json

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
        for failure in failures:
            click.echo(f"FAILED {failure}")
            if debug:
                click.echo(failure.traceback, err=True)
        click.echo(f"{kind.name}: {f'{len(failures)} checks failed' if failures else 'conforms'}")
    if failures:
        click.get_current_context().exit(_NOT_CONFORMING)
