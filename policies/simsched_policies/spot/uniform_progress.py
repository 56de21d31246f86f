"""Uniform Progress in one zone and over several, and what it is compared with.

Uniform Progress (Wu et al., "Can't Be Late", NSDI'24) uses spot nodes while work keeps pace with the time to the
deadline. Its forms over several zones (S, A, AP) are those of SkyNomad's artifact (NSDI'27), decision by decision.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import ClassVar

from simsched.errors import input_error, nearest
from simsched.model.outages import region_of
from simsched_policies.spot.instances import Instance, SpotPolicy, Turn, uniform_progress

_HOUR_S = 3600
_SAMPLES = 5  # of a zone that UP(A) keeps
_UNKNOWN = 0.5  # availability of a zone without samples
_SLACK = 1e-6
_GOOD_ENOUGH = 0.9  # of the best score, for UP(AP) to stay


@dataclass
class OnDemandOnly(SpotPolicy):
    """Runs each job on demand in the zone that is cheapest at its start."""

    name: ClassVar[str] = "on-demand-only"

    def serve(self, turn: Turn) -> None:
        """Launch once."""
        if turn.runs is None:
            turn.launch_first(*self.cheapest(spot=False))


@dataclass
class UniformProgress(SpotPolicy):
    """Uniform Progress in one zone, by default the first."""

    name: ClassVar[str] = "uniform-progress"

    zone: str = ""

    def serve(self, turn: Turn) -> None:
        """Hold what the rule wants, from the first second of a tick."""
        if self.zone and self.zone not in self.zones:
            message = f"the market has no zone '{self.zone}'"
            raise input_error(f"policy '{self.name}', zone", message, nearest(self.zone, self.zones))
        zone = self.zones.index(self.zone) if self.zone else 0
        wants, _ = uniform_progress(turn, turn.runs, free=turn.free(Instance(zone, spot=True)), strict=False)
        kind = None if wants is None else Instance(zone, wants)
        if kind is None:
            turn.stop()
        elif kind != turn.runs:
            turn.launch(kind)


@dataclass
class SafeSpotPolicy(SpotPolicy):
    """Goes on demand for good once a further restart would miss the deadline."""

    def serve(self, turn: Turn) -> None:
        """Let the safety net take over, or else the rule decide."""
        if not (turn.course.saved or turn.needs(1) >= turn.has):
            self.choose(turn)
            return
        turn.course.saved = True
        runs = turn.runs
        if runs is not None and runs.spot:
            turn.launch_first(runs.zone)
        elif runs is None:
            turn.launch_first(*sorted(range(len(self.zones)), key=lambda zone: self._last_cost(turn, zone)))

    def _last_cost(self, turn: Turn, zone: int) -> float:
        home, hours = turn.course.home, turn.left / _HOUR_S
        return self.price(zone, spot=False) * hours + (0.0 if home is None else self.transfer_cost(home, zone))

    def choose(self, turn: Turn) -> None:
        """Stop and launch instances while there is time."""
        raise NotImplementedError


@dataclass
class SpotUntilLast(SafeSpotPolicy):
    """Waits for the cheapest spot nodes until a further restart would miss the deadline."""

    name: ClassVar[str] = "spot-until-last"

    def choose(self, turn: Turn) -> None:
        """Launch on spot nodes if there are any."""
        if turn.runs is None:
            any(turn.launch(Instance(zone, spot=True)) for zone in self.cheapest(spot=True))


@dataclass
class UniformProgressS(SafeSpotPolicy):
    """UP(S): the cheapest zone with spot nodes, and another region after a loss."""

    name: ClassVar[str] = "uniform-progress-s"

    def choose(self, turn: Turn) -> None:
        """Try zones by price, those of the last region last."""
        memory = turn.course.memory
        if turn.runs is not None:
            memory["region"] = region_of(self.zones[turn.runs.zone])
        wants, back = uniform_progress(turn, turn.runs, free=True, strict=True)
        if self.settled(turn, wants):
            return
        if turn.runs is None:
            last = memory.get("region")
            order = sorted(self.cheapest(spot=True), key=lambda zone: region_of(self.zones[zone]) == last)
            if not any(turn.launch(Instance(zone, spot=True)) for zone in order):
                self.fall_back(turn, back=back)

    def settled(self, turn: Turn, wants: bool | None) -> bool:
        """Carry out what needs no try: keep or launch on demand; or stop on demand before the tries."""
        on_demand = turn.runs is not None and not turn.runs.spot
        if wants is False:
            if not on_demand:
                self.go_on_demand(turn)
            return True
        if on_demand:
            turn.stop()
        return False

    def go_on_demand(self, turn: Turn) -> None:
        """Launch on demand at home, else in the first zone."""
        turn.launch_first(turn.course.home)

    def fall_back(self, turn: Turn, *, back: bool) -> None:
        """Go on demand if the rule wants that without spot nodes."""
        if not back and uniform_progress(turn, None, free=False, strict=True)[0] is False:
            turn.launch_first(turn.course.home)


@dataclass
class Zones:
    """What a policy knows of each zone: samples of its availability, when the next is due, and the price last seen."""

    samples: list[deque[int]]
    prices: list[float]
    #: The ticks before which a zone is neither sampled as the main one nor probed.
    next_main: list[int]
    next_probe: list[int]
    main: int | None = None


@dataclass
class UniformProgressA(UniformProgressS):
    """UP(A): the zone whose spot nodes were available most often in its last five samples; one probe a tick."""

    name: ClassVar[str] = "uniform-progress-a"
    every_s: ClassVar[float] = 7200
    kept: ClassVar[int | None] = _SAMPLES
    #: The zones probed with success, by decision: (job, tick, zone).
    probes: list[tuple[str, int, int]] = field(default_factory=list, init=False, repr=False)

    def choose(self, turn: Turn) -> None:
        """Sample the main zone, follow the rule, move to a better zone, and probe others."""
        known = self._known(turn)
        self._sample_main(turn, known)
        wants, back = uniform_progress(turn, turn.runs, free=True, strict=True)
        running = turn.runs
        if self.settled(turn, wants):
            if wants is False:
                known.main = None
            return
        scores = [self.score(known, zone) for zone in range(len(self.zones))]
        if running is not None and running.spot and not self.stays(scores[running.zone], max(scores)):
            turn.stop()
        if turn.runs is None and not self._try(turn, known, scores):
            known.main = None
            self.fall_back(turn, back=back)
            if not self.probes_after_fall_back:
                return
        self._probe(turn, known)

    probes_after_fall_back: ClassVar[bool] = False

    def score(self, known: Zones, zone: int) -> float:
        """Return the availability of a zone's spot nodes."""
        samples = known.samples[zone]
        return sum(samples) / len(samples) if samples else _UNKNOWN

    def stays(self, own: float, best: float) -> bool:
        """Return whether a zone is good enough to stay."""
        return own >= best - _SLACK

    def due(self, known: Zones, tick: int) -> list[int]:
        """Return the zones to probe: one, with the fewest samples; in the form AP all whose time has come."""
        others = [zone for zone in range(len(self.zones)) if zone != known.main and tick >= known.next_probe[zone]]
        return sorted(others, key=lambda zone: len(known.samples[zone]))[: 1 if self.kept else None]

    def _known(self, turn: Turn) -> Zones:
        if "zones" not in turn.course.memory:
            prices = [self.price(zone, spot=True) for zone in range(len(self.zones))]
            samples: list[deque[int]] = [deque(maxlen=self.kept) for _ in prices]
            later = [0] * len(prices)
            turn.course.memory["zones"] = Zones(samples, prices, later, [*later] if self.kept else later)
        known = turn.course.memory["zones"]
        assert isinstance(known, Zones)
        return known

    def _later(self, turn: Turn) -> int:
        return turn.tick + round(self.every_s / turn.gap)

    def _sample_main(self, turn: Turn, known: Zones) -> None:
        main = known.main
        if main is None:
            return
        if turn.runs != Instance(main, spot=True):
            known.samples[main].append(0)
            known.main = None
        elif turn.tick >= known.next_main[main]:
            known.samples[main].append(1)
            known.next_main[main] = self._later(turn)

    def _try(self, turn: Turn, known: Zones, scores: list[float]) -> bool:
        """Launch in the first zone by score that has spot nodes; each try is a sample."""
        for zone in sorted(range(len(scores)), key=lambda zone: -scores[zone]):
            launched = turn.launch(Instance(zone, spot=True))
            self._note(known, zone, free=launched)
            if launched:
                known.main, known.next_main[zone] = zone, self._later(turn)
                return True
        return False

    def _note(self, known: Zones, zone: int, *, free: bool) -> None:
        known.samples[zone].append(int(free))
        known.prices[zone] = self.price(zone, spot=True)

    def _probe(self, turn: Turn, known: Zones) -> None:
        for zone in self.due(known, turn.tick):
            free = turn.free(Instance(zone, spot=True))
            self._note(known, zone, free=free)
            known.next_probe[zone] = self._later(turn)
            if free:
                self.probes.append((turn.job_id, turn.tick, zone))


@dataclass
class UniformProgressAP(UniformProgressA):
    """UP(AP): the zone with the best ratio of availability, over all samples, to price; all zones are probed hourly."""

    name: ClassVar[str] = "uniform-progress-ap"
    every_s: ClassVar[float] = 3600
    kept: ClassVar[int | None] = None
    probes_after_fall_back: ClassVar[bool] = True

    def score(self, known: Zones, zone: int) -> float:
        """Return the availability of a zone's spot nodes per dollar."""
        return super().score(known, zone) / known.prices[zone]

    def stays(self, own: float, best: float) -> bool:
        """Return whether a zone is nearly the best."""
        return own >= _GOOD_ENOUGH * best

    def go_on_demand(self, turn: Turn) -> None:
        """Launch on demand in the zone where the job runs, else in the first."""
        turn.launch_first(None if turn.runs is None else turn.runs.zone)

    def fall_back(self, turn: Turn, *, back: bool) -> None:
        """Go on demand in the first zone if the rule wants that without spot nodes."""
        if uniform_progress(turn, None, free=False, strict=True)[0] is False:
            turn.launch_first(0)
