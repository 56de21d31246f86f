"""Policies that decide by a network learnt in the environment, in NumPy, so that they need no library of learning."""

from __future__ import annotations

import base64
import io
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simsched.arithmetic import times
from simsched.errors import input_error
from simsched.gym.observation import Observation, Observer
from simsched.model import Allocation, Capacity
from simsched.model.placement import NOTHING
from simsched.policy import EARLIER_RUNS, Decision, Policy, Signal, Traits, View
from simsched.toolkit import PLACERS, PlacerName

#: Layers: weights, shape (out, in), and biases, shape (out,), of each.
Layers = Sequence[tuple[ArrayLike, ArrayLike]]
_LINE = 100


@dataclass(frozen=True)
class Network:
    """What the agent of `SchedulingEnv(action="job")` with these arguments saw, and the network that chose its actions.

    `packed` holds the layers; between layers negative numbers become 0, and the action with the largest output is
    taken. Its input are the parts of the observation in the order of their names, each row by row.
    """

    features: Sequence[str]
    cluster_features: Sequence[str]
    window: int
    running: int
    placement: PlacerName
    packed: str

    def observer(self) -> Observer:
        """Create what shows a view to the network."""
        return Observer(self.features, self.cluster_features, self.window, self.running)

    def layers(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Unpack the layers; raises `InputError` if they do not fit the observation and the actions."""
        with np.load(io.BytesIO(zlib.decompress(base64.b64decode(self.packed)))) as held:
            arrays = [held[name].astype(np.float64) for name in held.files]
        found = list(zip(arrays[::2], arrays[1::2], strict=True))
        sizes = [found[0][0].shape[1], *(weights.shape[0] for weights, _ in found)]
        wanted = self.observer().size, self.window + 1
        if (sizes[0], sizes[-1]) != wanted:
            raise input_error("network", f"takes {sizes[0]} numbers and gives {sizes[-1]}", f"give one of {wanted}")
        return found


def outputs(layers: Layers, observation: Observation) -> NDArray[np.float64]:
    """Return the output of a network for an observation, one number per action, the same on every processor."""
    numbers = np.concatenate([observation[name].ravel() for name in sorted(observation)]).astype(np.float64)
    for place, (weights, biases) in enumerate(layers):
        numbers = times(weights, np.maximum(numbers, 0.0) if place else numbers) + np.asarray(biases)
    return numbers


def signals_of(features: Sequence[str]) -> frozenset[Signal]:
    """Return what a policy needs that has learnt to decide by features of jobs."""
    return frozenset({EARLIER_RUNS}) | Observer(features, (), 1).features.needs


class NetworkPolicy(Policy):
    """Starts waiting jobs one by one as its network says; running jobs keep their GPUs.

    It waits where the network prefers to, unless nothing runs.
    """

    network: ClassVar[Network]
    traits: ClassVar[Traits] = Traits(needs={EARLIER_RUNS}, forgets=True)

    def __init__(self) -> None:
        """Unpack the network."""
        self._layers, self._observer = self.network.layers(), self.network.observer()
        self._placer = PLACERS[self.network.placement]

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start jobs until the network would rather wait, or none fits."""
        waiting = [job for job in view.jobs.values() if not job.running]
        free, starts = Capacity.of(view), dict[str, Allocation]()
        gpus, window = sum(node.gpus for node in view.nodes), self.network.window
        while free.total:
            places = [
                free.choose(self._placer.within(job.request.shape), job.num_gpus, free.fitting(job.facts))
                for job in waiting[:window]
            ]
            fits = [place is not None for place in places]
            if not any(fits):
                break
            possible = np.zeros(window + 1, dtype=np.bool_)
            possible[: len(fits)] = fits
            possible[window] = len(view.jobs) > len(waiting)
            numbers = outputs(self._layers, self._observer.show(view, waiting, fits, gpus))
            action = int(np.argmax(np.where(possible, numbers, -np.inf)))
            if action == window:
                break
            job = waiting.pop(action)
            found = starts[job.id] = places[action] or NOTHING
            free.take(found, job.request.shape)
        return Decision.change(starts)


_POLICY = '''\
"""{name}: a network that was learnt in simulations starts the jobs ({about})."""

from typing import ClassVar

from simsched.gym.network import Network, NetworkPolicy, signals_of
from simsched.policy import Traits

NETWORK = Network(
{arguments}
    packed="".join((
{packed}
    )),
)


class {kind}(NetworkPolicy):
    """Starts waiting jobs one by one as its network says."""

    name: ClassVar[str] = "{name}"
    network: ClassVar[Network] = NETWORK
    traits: ClassVar[Traits] = Traits(needs=signals_of(NETWORK.features), forgets=True)
'''


def network_text(name: str, layers: Layers, seen: Mapping[str, Any], about: str) -> str:
    """Return a policy file, with a class named after `name`, that decides by a network with rectified layers.

    `seen` holds what the environment has in `SchedulingEnv.seen`, `about` how the network was learnt.
    """
    content = io.BytesIO()
    arrays = [np.asarray(array, dtype=np.float32) for layer in layers for array in layer]
    np.savez(content, *arrays)
    packed = base64.b64encode(zlib.compress(content.getvalue(), 9)).decode()
    Network(**seen, packed=packed).layers()
    kind = "".join(part.capitalize() for part in name.replace("_", "-").split("-"))
    return _POLICY.format(
        name=name,
        kind=kind,
        about=about,
        arguments="\n".join(f"    {key}={value!r}," for key, value in seen.items()),
        packed="\n".join(f'        "{packed[at : at + _LINE]}"' for at in range(0, len(packed), _LINE)),
    )
