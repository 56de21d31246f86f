"""`simsched what-if`: whom a change affects, and how."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from simsched.cli.gate import LOG, print_answer, publish_answer, titled, tried
from simsched.cli.operator_options import (
    NO_PAGE,
    NODE_PRICE,
    TRUST_ANYWAY,
    LogOptions,
    Manifests,
    answer_plans,
    takes_manifests,
)
from simsched.cli.options import JSON, command, opt
from simsched.cli.output import hours

if TYPE_CHECKING:
    from simsched.operators import Calibration, Change, Effect, Forecast, Verdict
    from simsched.report import TextTable
    from simsched.report.page import Section

#: The most groups shown of a kind.
_MOST = 12


@command(name="what-if")
def what_if(
    log: Path = LOG,
    *,
    how: LogOptions,
    change: tuple[str, ...] = opt("A change. Repeatable.", metavar="KEY=VALUE", required=True),
    by: tuple[Literal["tenant", "queue", "user", "size", "type"], ...] = opt("Only these groups."),
    node_price: float | None = NODE_PRICE,
    manifests: Manifests,
    trust_anyway: bool = TRUST_ANYWAY,
    no_plots: bool = NO_PAGE,
    as_json: bool = JSON,
) -> None:
    """Replay a log with and without a change, and show who gains and who loses.

    First, the replay without the change is compared with the recorded waits; if they do not match, the answer is the
    misfit. A change is a key of an experiment, such as tenants.vision.max_gpus=64 or cluster.a100.nodes=50, or a
    relative one: +4, -4, -25% or *1.5. policy.KEY is a parameter of the policy and policy=NAME another policy. LOG may
    be a folder of Kubernetes manifests; a change may then also be a field of an object,
    ClusterQueue/vision.spec.cohortName=all, or a file of objects that replace those with the same names. Manifests do
    not record waits, so such an answer carries a caveat.

    The result goes to the page answers.html of the log's results.
    """
    from simsched.operators import ALL_KINDS, is_change_of_objects, what_if as compare

    of_objects = [one for one in change if takes_manifests(log) and is_change_of_objects(one)]
    plan, after = answer_plans(log, how, manifests, of_objects, node_price_per_h=node_price)
    answer = compare(
        plan, [one for one in change if one not in of_objects], by=[kind for kind in ALL_KINDS if not by or kind in by],
        trust_anyway=trust_anyway, changed=after if of_objects else None, progress=tried,
    )  # fmt: skip
    found, shown = answer.calibration, _shown(answer.effects) if answer.effects else []
    section = _section(answer, shown)
    paths = [] if no_plots else _published(found, section, shown)
    content = {
        "changes": [asdict(one) for one in answer.changed],
        "effects": [{**asdict(effect), "verdict": effect.verdict} for effect in answer.effects],
    }
    print_answer(found, section, paths, content, as_json=as_json)


def _shown(effects: Sequence[Effect]) -> list[Effect]:
    """For kinds with many groups, drop those whose mean wait changes least, and duplicates of the total."""
    kept: list[Effect] = []
    for kind in dict.fromkeys(effect.by for effect in effects):
        groups = [effect for effect in effects if effect.by == kind and effect.before.group != "all"]
        groups.sort(key=lambda one: -abs(one.after.mean_wait_s - one.before.mean_wait_s))
        names = {effect.before.group for effect in groups[:_MOST]}
        kept += [effect for effect in effects if effect.by == kind and effect.before.group in names]
    return [*kept, next(effect for effect in effects if effect.before.group == "all")]


def _section(answer: Change, shown: Sequence[Effect]) -> Section:
    from simsched.report.page import Section

    effects, verdict = answer.effects, answer.calibration.verdict
    changes = [str(one) for one in answer.changed]
    asked = " and ".join(one.words for one in answer.changed)
    heading, change = f"What would a change do, and to whom? {asked}", f"Change: {', '.join(changes)}."
    if not shown:
        words = [change, "No answer: the replay does not match this log, as shown above."]
        none = f"{asked}: no answer, as the replay does not match this log."
        return Section("what-if", heading, words, question=change, sentence=none)
    forecasts = [_forecasts(shown, changes)] if shown[-1].forecast is not None else []
    tables = [*forecasts, _table(shown, len(effects) - len(shown), changes), _usage(shown)]
    words = [_answer(shown[-1]), change, *_winners(effects), _cut(shown[-1])]
    sentence = titled(f"{asked}: {_sentence(effects)}", verdict)
    compared = _compared(changes, shown, verdict)
    return Section("what-if", heading, words, tables, question=change, sentence=sentence, compared=compared)


def _published(found: Calibration, section: Section, shown: Sequence[Effect]) -> list[Path]:
    import pandas as pd

    from simsched.report.figures import wait_changes

    if not shown:
        return publish_answer(found, section)
    rows = [
        (one.by, one.before.group, one.before.mean_wait_s / 3600, one.after.mean_wait_s / 3600, one.verdict)
        for one in shown
    ]
    data = pd.DataFrame(rows, columns=["by", "group", "before_h", "after_h", "verdict"])
    data.loc[data["group"] == "all", ["by", "group"]] = ["all", "jobs"]
    title = "Who gains and who loses, in the replays"
    return publish_answer(found, section, title, lambda titled: wait_changes(data, title=titled))


def _sentence(effects: Sequence[Effect]) -> str:
    """Say what the queue that changes most will wait; without forecasts, what all jobs wait in the replays."""
    whole = next(one for one in effects if one.before.group == "all")
    known = [one for one in effects if one.by == "queue" and one.forecast is not None and one.before.group != "all"]
    most = max(known, key=lambda one: one.before.jobs * one.forecast.change_s if one.forecast else 0, default=whole)
    who = "jobs wait" if most.before.group == "all" else f"the queue {most.before.group} waits"
    if most.forecast is None:
        after, before = (hours(one.mean_wait_s, 1) for one in (most.after, most.before))
        return f"in the replays {who} {after} h instead of {before}."
    mean, now, low, high = (hours(getattr(most.forecast, f"{name}_s"), 1) for name in ("mean", "now", "low", "high"))
    return f"{who} {mean} h instead of {now} [{low} to {high}]."


def _compared(changes: Sequence[str], shown: Sequence[Effect], verdict: Verdict) -> dict[str, str]:
    """Return the row of a question in the table of all: the forecast of all jobs and of each queue."""
    found = {"change": ", ".join(changes)}
    for one in reversed(shown):
        if one.before.group == "all" or one.by == "queue":
            who = "all jobs" if one.before.group == "all" else one.before.group
            waits = _interval(one.forecast) if one.forecast is not None else f"{hours(one.after.mean_wait_s)} h"
            found[f"{who} (h)"] = waits.replace(" h", "")
    return found | {"replay": "matches" if verdict.is_open else "does not match" if verdict.rows else "not judged"}


def _answer(every: Effect) -> str:
    found = every.forecast
    if found is None:
        return ""
    return (
        f"A job waited {hours(found.now_s)} h on average, and will wait {_interval(found)}. "
        f"{100 * every.sooner:.0f} % of the jobs wait less than before, {100 * every.later:.0f} % more."
    )


def _interval(found: Forecast) -> str:
    return f"{hours(found.mean_s)} h [{hours(found.low_s)}, {hours(found.high_s)}]"


def _cut(every: Effect) -> str:
    return f"Jobs that end at a limit or are cancelled: {every.cut_before} before, {every.cut_after} after."


def _forecasts(shown: Sequence[Effect], changes: Sequence[str]) -> TextTable:
    from simsched.operators import Forecast
    from simsched.report import TextTable

    rows = tuple(
        ("" if one.before.group == "all" else one.by, one.before.group, f"{one.before.jobs}",
         hours(one.forecast.now_s), _interval(one.forecast).replace(" h", ""), one.forecast.direction)
        for one in shown
        if one.forecast is not None
    )  # fmt: skip
    held, changed = Forecast.COVERED
    notes = (
        "Forecast: the recorded mean wait, changed like the replays. In brackets: the 90 % interval; on generated "
        f"clusters it held the true mean wait of {held} of {changed} changes.",
    )
    headers = ("jobs by", "", "jobs", "recorded mean wait (h)", "forecast (h)", "wait")
    return TextTable(f"Forecast of {', '.join(changes)}", headers, rows, notes, 2)


def _usage(shown: Sequence[Effect]) -> TextTable:
    from simsched.report import TextTable

    known = [one.used for one in shown if one.used is not None]
    powered, priced = (all(getattr(used[0], key) is not None for used in known) for key in ("energy_kwh", "cost"))
    keys = [
        ("GPU hours", "gpu_hours", 1.0),
        ("of the GPUs (%)", "utilisation", 100.0),
        ("lost GPU hours", "lost_gpu_hours", 1.0),
    ]
    keys += [("busy energy (kWh)", "energy_kwh", 1.0)] * powered + [("cost ($)", "cost", 1.0)] * priced
    rows = tuple(
        (
            "" if one.before.group == "all" else one.by,
            one.before.group,
            *(f"{factor * getattr(used, key):,.1f}" for _, key, factor in keys for used in one.used),
        )
        for one in shown
        if one.used is not None
    )
    notes = [
        "For the judged period, in the replays. Lost: of jobs killed at a limit or cancelled, or undone by failures."
    ]
    if not powered:
        notes.append("Energy: give the power of GPUs, -o cluster.power={}, with idle_w and busy_w of unknown types.")
    if not priced:
        notes.append("Cost: --node-price.")
    headers = ("jobs by", "", *(f"{name} {when}" for name, _, _ in keys for when in ("before", "after")))
    return TextTable("GPU hours, energy and cost", headers, rows, tuple(notes), 2)


def _winners(effects: Sequence[Effect]) -> list[str]:
    """Name the tenants, queues, sizes and types that are forecast to wait less or more."""
    said = []
    for direction in ("less", "more"):
        named = [
            f"{one.by} {one.before.group}"
            for one in effects
            if one.forecast is not None and one.forecast.direction == direction
            if one.by != "user" and one.before.group != "all"
        ]
        if named:
            said.append(f"{direction.capitalize()} wait for {', '.join(named)}.")
    return said


def _table(shown: Sequence[Effect], hidden: int, changes: Sequence[str]) -> TextTable:
    from simsched.report import TextTable

    headers = (
        "jobs by", "", "jobs", "mean wait before (h)", "after (h)", "p90 before (h)", "p90 after (h)",
        "slow-down before", "slow-down after", "sooner (%)", "later (%)", "verdict",
    )  # fmt: skip
    rows = tuple(
        (
            "" if effect.before.group == "all" else effect.by, effect.before.group, f"{effect.before.jobs}",
            hours(effect.before.mean_wait_s), hours(effect.after.mean_wait_s), hours(effect.before.p90_wait_s),
            hours(effect.after.p90_wait_s), f"{effect.before.slowdown:.2f}", f"{effect.after.slowdown:.2f}",
            f"{100 * effect.sooner:.0f}", f"{100 * effect.later:.0f}", effect.verdict,
        )
        for effect in shown
    )  # fmt: skip
    groups = hidden - (len({effect.by for effect in shown}) - 1)
    notes = [
        "Sooner and later: the shares of jobs that wait less and more than before.",
        "Gains and loses: the mean wait in the replay changes by more than a minute and a twentieth.",
    ]
    every = shown[-1]
    if every.cut_before or every.cut_after:
        notes.append(_cut(every))
    if groups > 0:
        notes.append(f"{groups} groups whose mean wait changes less are left out; --json has all.")
    return TextTable(f"Replays before and after {', '.join(changes)}", headers, rows, tuple(notes), 2)
