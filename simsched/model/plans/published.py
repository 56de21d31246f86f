"""How published tables write plans."""

from __future__ import annotations

from simsched.model.plans.plan import Plan

#: The strategies of Morphling's tables besides three digits. The stage of `zero-dp` is not recorded; that of offload is
#: ZeRO-Offload's. Gradients are accumulated in all of them as far as the batch asks for.
_STRATEGIES = {
    "ga": Plan(),
    "gc": Plan(recomputation="full"),
    "zero-dp": Plan(zero=1),
    "zero-offload": Plan(zero=2, offload=True),
    "zero-offload+gc": Plan(recomputation="full", zero=2, offload=True),
}


def morphling_plan(text: str, gpus: int) -> Plan:
    """Return the plan that Morphling's tables write as `pipeline tensor data`, one digit each, or by its strategy.

    Micro-batches are not recorded; they are taken as 1. Raises `ValueError` for anything else, and for digits that do
    not take all GPUs.
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
