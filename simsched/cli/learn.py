"""`simsched learn`: learn the weights of a policy in simulations."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from simsched.cli.experiment import experiment_argument, overrides_option

#: Characters of the longest bar of the curve.
_BAR = 40


@click.command()
@experiment_argument
@overrides_option
@click.option("--out", "path", type=click.Path(path_type=Path), default=Path("learnt.py"), show_default=True,
              metavar="FILE", help="The policy file, whose name gives that of the class.")  # fmt: skip
@click.option("--feature", "features", multiple=True, metavar="NAME", help="Weigh this feature instead of the usual"
              " ones. Repeatable.")  # fmt: skip
@click.option("--seeds", default="101-124", show_default=True, metavar="FIRST-LAST", help="Seeds of the workloads.")
@click.option("--held-out", default="201-206", show_default=True, metavar="FIRST-LAST", help="Seeds of workloads that"
              " show after each generation how well unseen ones go.")  # fmt: skip
@click.option("--generations", type=click.IntRange(min=1), default=12, show_default=True, metavar="N")
@click.option("--population", type=click.IntRange(min=4), default=24, show_default=True, metavar="N", help="Candidates"
              " per generation.")  # fmt: skip
@click.option("--episodes", type=click.IntRange(min=1), default=6, show_default=True, metavar="N", help="Workloads"
              " per candidate.")  # fmt: skip
@click.option("-j", "--workers", type=click.IntRange(min=1), default=1, show_default=True, metavar="N")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def learn(
    experiment: str,
    overrides: tuple[str, ...],
    path: Path,
    features: tuple[str, ...],
    seeds: str,
    held_out: str,
    generations: int,
    population: int,
    episodes: int,
    workers: int,
    force: bool,
) -> None:
    """Learn an order of jobs in simulations of EXPERIMENT, and write it as a policy.

    The order follows a weighted sum of features of jobs: requested GPUs, age, attained service, whether it runs, and
    its application. Training minimises the mean JCT on workloads of the given seeds; the curve on stderr tells how long
    jobs take on held-out ones. Evaluate the policy on yet others. The experiment's policies are ignored. Needs the
    extra `gym`.
    """
    from simsched.errors import input_error
    from simsched.files import write_text

    if find_spec("gymnasium") is None:
        raise input_error("learn", "the package 'gymnasium' is not installed", "pip install 'simsched[gym]'")
    from simsched.gym import Evolution, evolve, policy_text

    module = path.name.removesuffix(".py")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", module) or path.suffix != ".py":
        raise input_error("--out", f"'{path.name}' cannot name a policy", "use small letters and _, as in learnt.py")
    if path.exists() and not force:
        raise input_error(path, "already exists", "give --force to overwrite it, or another --out")
    drawn, unseen = _range("--seeds", seeds), _range("--held-out", held_out)
    search = Evolution(generations, population, episodes, drawn, workers, unseen)
    longest = 0.0

    def heard(generation: int, hours: float, held_out_hours: float) -> None:
        nonlocal longest
        longest = max(longest, held_out_hours)
        bar = "#" * round(_BAR * held_out_hours / longest)
        click.echo(
            f"generation {generation:2d} of {generations}: mean JCT {hours:.3f} h at best on its own workloads, "
            f"{held_out_hours:.3f} h held out {bar}",
            err=True,
        )

    weights = evolve(experiment, changes_of(overrides), features=features, search=search, heard=heard)
    write_text(path, policy_text(module.replace("_", "-"), weights, experiment, search))
    kind = "".join(part.capitalize() for part in module.split("_"))
    click.echo(f"{path}: try `simsched run {experiment} -o 'policies=[{{name: \"{path}:{kind}\"}}, {{name: fifo}}]'`")


def _range(option: str, seeds: str) -> range:
    ends = re.fullmatch(r"(\d{1,9})-(\d{1,9})", seeds)
    if ends is None:
        from simsched.errors import input_error

        raise input_error(option, f"is '{seeds}'", "give the first and the last, as in 101-124")
    return range(int(ends[1]), int(ends[2]) + 1)


def changes_of(overrides: tuple[str, ...]) -> dict[str, Any]:
    """Convert `key=value` overrides to the changes of the Python API."""
    from simsched.documents import parse_value

    return {key: parse_value(value, f"-o {key}") for key, _, value in (one.partition("=") for one in overrides)}
