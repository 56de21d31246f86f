"""`simsched admit` and `simsched anonymise`: a workload before it is submitted, and a cluster's objects to share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from simsched.cli.operator_options import NOW, SIMILAR, USUAL_DURATION
from simsched.cli.options import JSON, arg, command, opt
from simsched.cli.output import print_json, write_file
from simsched.errors import InputError, input_error
from simsched.words import clock, counted

if TYPE_CHECKING:
    from simsched.operators.admit import Admitted, Moment, When
    from simsched.operators.dump import Dump, Durations

#: The most victims that are listed.
_MOST = 20


def dump_of(
    path: Path, now: datetime | None, durations: Sequence[Path], duration: str, seed: int
) -> tuple[Dump, Durations]:
    """Read a cluster's objects, and the durations of jobs like those that wait there."""
    import numpy as np

    from simsched.operators.dump import Durations, Past, past_of, read_dump
    from simsched.operators.manifests import distribution
    from simsched.threads import spared_by_the_collector

    past, known = list[Past](), dict[str, float]()
    for file in durations:
        more, names = past_of(file)
        past, known = [*past, *more], {**known, **names}
    with spared_by_the_collector():  # what is read has no cycles, and looking for some costs as much as reading it
        dump = read_dump(path, now_s=None if now is None else now.replace(tzinfo=UTC).timestamp(), known=known)
    draw = distribution(duration, np.random.default_rng(seed)) if duration else None
    click.echo(dump.summary(), err=True)
    return dump, Durations.of([*past, *dump.past], draw)


@command()
def admit(
    job: Path = arg("JOB"),
    *,
    cluster: Path = opt("Its objects.", metavar="DUMP"),
    now: datetime | None = NOW,
    durations: tuple[Path, ...] = SIMILAR,
    duration: str = USUAL_DURATION,
    seed: int = opt(default=1),
    allow: tuple[str, ...] = opt("Accept a field that is not modelled. Repeatable.", metavar="FIELD"),
    draws: int = opt("Runs to say when; 0: none.", type=click.IntRange(min=0), default=10),
    as_json: bool = JSON,
) -> None:
    """Say whether Kueue would admit the workloads of JOB now, with what and at whose cost, or why not and when.

    JOB is a manifest that is not submitted yet, DUMP a folder or file with what `kubectl get -o yaml` prints: nodes,
    queues, jobs, workloads and, if there are any, pods. A workload that has to wait gets a forecast of its start if the
    objects, --durations or --duration tell how long similar jobs run.
    """
    from simsched.manifests import read_objects
    from simsched.operators.admit import SCHEMA, decide, moment_of

    dump, similar = dump_of(cluster, now, durations, duration, seed)
    new = read_objects(job)
    moment = moment_of(dump, new=new, allow=allow)
    answers = decide(moment)
    unknown = ""
    if draws and not all(one.admitted for one in answers):
        whens, unknown = _when(lambda: moment_of(dump, new=new, allow=allow, future=True), similar, draws, seed)
        starts = {when.workload: when for when in whens}
        answers = [one if one.admitted else replace(one, when=starts.get(one.workload)) for one in answers]
    if as_json:
        print_json({"schema": SCHEMA, "now_s": dump.now_s, "workloads": [_plain(one) for one in answers]})
        return
    for one in answers:
        click.echo("\n".join(_lines(one, unknown)))


def _when(moment: Callable[[], Moment], similar: Durations, draws: int, seed: int) -> tuple[list[When], str]:
    """Return the forecasts, or why there are none."""
    from simsched.operators.admit import forecast_moment

    try:
        return forecast_moment(moment(), similar, draws=draws, seed=seed), ""
    except InputError as error:
        return [], error.problems[0].message


def _plain(one: Admitted) -> dict[str, Any]:
    victims, when = [victim._asdict() for victim in one.victims], one.when
    return {**asdict(one), "victims": victims, "when": None if when is None else when._asdict()}


def _lines(one: Admitted, unknown: str) -> list[str]:
    asks = f"{one.workload} ({counted(one.gpus, 'GPU')}, queue {one.queue})"
    if not one.admitted:
        lines = [f"{asks}: not admitted now.", f"  why: {one.reason}"]
        if one.when is not None:
            return [*lines, f"  when: {in_words(one.when)}"]
        return [*lines, f"  when: unknown, as {unknown}"] if unknown else lines
    lines = [f"{asks}: admitted now."]
    lines += [f"  flavors: {', '.join(f'{amount} {name}' for name, amount in sorted(one.flavours.items()))}"]
    lines += [f"  {label}: {', '.join(values)}" for label, values in one.domains.items()]
    lines += [f"  nodes: {', '.join(f'{node} ({gpus})' for node, gpus in one.nodes.items())}"] if one.nodes else []
    for victim in one.victims[:_MOST]:
        owner = f"{counted(victim.gpus, 'GPU')}, queue {victim.queue}"
        lines.append(f"  preempts {victim.workload} ({owner}): {victim.why}")
    more = len(one.victims) - _MOST
    return [*lines, f"  and {more} more"] if more > 0 else lines


def in_words(one: When) -> str:
    """Say when a workload starts."""
    times = ["not in sight" if isinf(at) else clock(at) for at in (one.median_s, one.low_s, one.high_s)]
    return f"in {times[0]} (80 % interval: {times[1]} to {times[2]})"


@command()
def anonymise(
    dump: Path = arg("DUMP"),
    *,
    out: Path = opt("Where to write it, .json."),
    key: Path | None = opt("Also write what replaced what, for you."),
) -> None:
    """Write the objects of a Kubernetes cluster without names, so that they can be shared.

    Names, namespaces, images, labels and all other free text are replaced, the same text by the same word, in an order
    that leaves all decisions as they are. Kinds and fields that decide nothing are left out.
    """
    from simsched.manifests import objects_text, read_objects
    from simsched.operators.anonymise import anonymised
    from simsched.outlets import json_text

    if out.suffix != ".json":
        raise input_error("--out", f"'{out}' does not end in .json", "the objects are written as JSON")
    objects = read_objects(dump)
    found, words = anonymised(objects)
    write_file(out, objects_text(found, copy=False))
    if key is not None:
        write_file(key, json_text(words, indent=1))
    left = len(objects) - len(found)
    click.echo(f"{out}: {counted(len(found), 'object')}" + (f"; left out: {left} of other kinds" if left else ""))
