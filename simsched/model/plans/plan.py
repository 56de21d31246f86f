"""The shape of a transformer, and a plan of parallel training: how the GPUs of a job divide the model and the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Recomputation = Literal["none", "selective", "full"]
RECOMPUTATIONS: tuple[Recomputation, ...] = get_args(Recomputation)


@dataclass(frozen=True, order=True)
class Plan:
    """Tensor, pipeline, data and context ranks; sequences per micro-batch; virtual stages per GPU; what saves memory.

    Activations are kept, recomputed in the attention only, or fully recomputed. `sequence_parallel` divides over the
    tensor ranks what tensor parallelism replicates. `zero` is the stage of ZeRO, 0 for none; `offload` keeps gradients
    and the optimiser's state in the host's memory.
    """

    tensor: int = 1
    pipeline: int = 1
    data: int = 1
    context: int = 1
    micro_batch: int = 1
    interleave: int = 1
    recomputation: Recomputation = "none"
    sequence_parallel: bool = False
    zero: int = 0
    offload: bool = False

    def __post_init__(self) -> None:
        """Reject counts below 1, and unknown kinds of recomputation and of ZeRO."""
        counts = (self.tensor, self.pipeline, self.data, self.context, self.micro_batch, self.interleave)
        if min(counts) < 1 or self.recomputation not in RECOMPUTATIONS or self.zero not in range(4):
            raise ValueError(f"{self} is no plan: ranks are at least 1, stages of ZeRO 0 to 3")

    @property
    def gpus(self) -> int:
        """Return the GPUs that it takes."""
        return self.tensor * self.pipeline * self.data * self.context

    def micro_batches(self, global_batch: int) -> int:
        """Return the micro-batches per step and replica."""
        return global_batch // (self.data * self.micro_batch)

    def __str__(self) -> str:
        """Format the plan as words that `parse` reads, for instance `t8 p4 d16 b2 v3 full zero1`."""
        counts = zip("tpdcbv", astuple(self)[:6], strict=True)
        words = [f"{letter}{count}" for letter, count in counts if count > 1 or letter in "tpd"]
        words += [self.recomputation] * (self.recomputation != "none") + ["sp"] * self.sequence_parallel
        return " ".join(words + [f"zero{self.zero}"] * (self.zero > 0) + ["offload"] * self.offload)

    @classmethod
    def parse(cls, text: str) -> Plan:
        """Parse the output of `str`, in any order; raises `ValueError` naming an unknown word."""
        names = dict(zip("tpdcbv", ("tensor", "pipeline", "data", "context", "micro_batch", "interleave"), strict=True))
        found: dict[str, Any] = {}
        for word in text.split():
            letter, number = word.rstrip("0123456789"), word.lstrip("abcdefghijklmnopqrstuvwxyz")
            if letter in names and number:
                said: tuple[str, Any] = names[letter], int(number)
            elif letter == "zero" and number:
                said = "zero", int(number)
            elif word in RECOMPUTATIONS:
                said = "recomputation", word
            elif word in ("sp", "offload"):
                said = {"sp": "sequence_parallel"}.get(word, word), True
            else:
                raise ValueError(f"'{word}' is not a word of a plan; write 't8 p4 d16 c1 b2 v3 full sp zero1 offload'")
            if said[0] in found:
                raise ValueError(f"'{text}' says the same twice: '{word}'")
            found[said[0]] = said[1]
        return cls(**found)


class PlanTable(NamedTuple):
    """Plans as columns of numbers, all of shape (n,); recomputation as an index into `RECOMPUTATIONS`."""

    tensor: Floats
    pipeline: Floats
    data: Floats
    context: Floats
    micro_batch: Floats
    interleave: Floats
    recomputation: Floats
    sequence_parallel: Floats
    zero: Floats
    offload: Floats

    @classmethod
    def of(cls, plans: Sequence[Plan]) -> PlanTable:
        """Build the table of some plans."""
        rows = [(*row[:6], RECOMPUTATIONS.index(row[6]), *row[7:]) for row in map(astuple, plans)]
        return cls(*np.array(rows, dtype=np.float64).reshape(len(rows), 10).T)

    def plan(self, at: int) -> Plan:
        """Return the plan of a row."""
        t, p, d, c, b, v, kept, parallel, zero, offload = (int(column[at]) for column in self)
        return Plan(t, p, d, c, b, v, RECOMPUTATIONS[kept], bool(parallel), zero, bool(offload))

    def where(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> PlanTable:
        """Return the chosen rows."""
        return PlanTable(*(column[chosen] for column in self))

    def same_layer(self, plan: Plan) -> NDArray[np.bool_]:
        """Return the rows whose layers run as those of a plan."""
        one, same = PlanTable.of([plan]), np.ones(len(self.tensor), dtype=np.bool_)
        for name in ("tensor", "context", "micro_batch", "recomputation", "sequence_parallel"):
            same &= getattr(self, name) == getattr(one, name)
        return same

    @property
    def gpus(self) -> Floats:
        """Return the GPUs that each plan takes."""
        return self.tensor * self.pipeline * self.data * self.context

    @property
    def replicas(self) -> Floats:
        """Return the GPUs that hold equal weights: data ranks times context ranks."""
        return self.data * self.context

    def keeps(self, recomputation: Recomputation) -> Floats:
        """Return 1 for plans with this kind of recomputation, else 0."""
        return np.where(self.recomputation == RECOMPUTATIONS.index(recomputation), 1.0, 0.0)


#: The strategies in Morphling's tables other than three digits. The stage of `zero-dp` is not recorded; offload is
#: ZeRO-Offload's. All of them accumulate gradients as the batch requires.
_STRATEGIES = {
    "ga": Plan(),
    "gc": Plan(recomputation="full"),
    "zero-dp": Plan(zero=1),
    "zero-offload": Plan(zero=2, offload=True),
    "zero-offload+gc": Plan(recomputation="full", zero=2, offload=True),
}


def morphling_plan(text: str, gpus: int) -> Plan:
    """Parse a plan in Morphling's tables: `pipeline tensor data`, one digit each, or a strategy.

    Micro-batches are not recorded; they are assumed to be 1. Raises `ValueError` for anything else, and for digits that
    do not use all GPUs.
    """
    if text == "tp+ga":
        return Plan(tensor=gpus)
    if text in _STRATEGIES:
        one = _STRATEGIES[text]
        return Plan(data=gpus, recomputation=one.recomputation, zero=one.zero, offload=one.offload)
    if len(text) != 3 or not text.isdecimal() or "0" in text:
        raise ValueError(f"'{text}' is none of {', '.join(_STRATEGIES)}, tp+ga, and no three digits above 0")
    pipeline, tensor, data = map(int, text)
    plan = Plan(tensor, pipeline, data)
    if plan.gpus != gpus:
        raise ValueError(f"'{text}' takes {plan.gpus} GPUs, not {gpus}")
    return plan


@dataclass(frozen=True)
class ModelShape:
    """A decoder of equal layers: attention with `heads`, some sharing keys and values, and an MLP of `mlp` units.

    A gated MLP has three matrices instead of two; an untied output has its own matrix besides the embedding.
    """

    layers: int
    hidden: int
    mlp: int
    heads: int
    kv_heads: int
    vocabulary: int
    sequence: int
    gated: bool = False
    untied: bool = False

    def __post_init__(self) -> None:
        """Reject counts below 1, and heads that do not share keys and values evenly."""
        counts = (self.layers, self.hidden, self.mlp, self.heads, self.kv_heads, self.vocabulary, self.sequence)
        if min(counts) < 1 or self.heads % self.kv_heads:
            raise ValueError("a model needs counts of at least 1, and as many heads for each of its key-value heads")

    @cached_property
    def layer_parameters(self) -> float:
        """Return the parameters of a layer's matrices: h^2 (2 + 2k/a) for attention, 2hf or 3hf for the MLP."""
        attention = self.hidden**2 * (2 + 2 * self.kv_heads / self.heads)
        return attention + (3 if self.gated else 2) * self.hidden * self.mlp

    @cached_property
    def parameters(self) -> float:
        """Return the parameters of all layers, the embedding, and the output if it is untied."""
        return self.layers * self.layer_parameters + (2 if self.untied else 1) * self.vocabulary * self.hidden
