"""`simsched check`: does a policy keep to the contract?"""

from __future__ import annotations

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

    NAME is a registered name, package.module:Class or path/to/file.py:Class.
    """
    from simsched.policy import registry
    from simsched.testing import check_policy

    failures = check_policy(registry.load(name), seeds=seeds)
    if as_json:
        print_json({"policy": name, "failures": [{"check": one.check, "reason": one.reason} for one in failures]})
    else:
        for failure in failures:
            click.echo(f"FAILED {failure}")
        click.echo(f"{name}: {f'{len(failures)} checks failed' if failures else 'conforms'}")
    if failures:
        click.get_current_context().exit(_NOT_CONFORMING)
