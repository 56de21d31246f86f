"""The shape of a transformer, from which its parameters and the work of a step follow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class ModelShape:
    """A decoder of equal layers: an attention of `heads`, some sharing keys and values, and an MLP of `mlp` units.

    A gated MLP has three matrices instead of two; an untied output has a matrix of its own beside the embedding.
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
        """Refuse counts below 1, and heads that do not share keys and values evenly."""
        counts = (self.layers, self.hidden, self.mlp, self.heads, self.kv_heads, self.vocabulary, self.sequence)
        if min(counts) < 1 or self.heads % self.kv_heads:
            raise ValueError("a model needs counts of at least 1, and as many heads for each of its key-value heads")

    @cached_property
    def layer_parameters(self) -> float:
        """Return the parameters of a layer's matrices: h^2 (2 + 2k/a) of the attention, 2hf or 3hf of the MLP."""
        attention = self.hidden**2 * (2 + 2 * self.kv_heads / self.heads)
        return attention + (3 if self.gated else 2) * self.hidden * self.mlp

    @cached_property
    def parameters(self) -> float:
        """Return the parameters of all layers, the embedding, and the output where it is untied."""
        return self.layers * self.layer_parameters + (2 if self.untied else 1) * self.vocabulary * self.hidden
