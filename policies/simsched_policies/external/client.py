"""A scheduler for simsched in plain Python: shortest remaining time first, with backfill.

It speaks the protocol of docs/external.md on its standard streams, and needs nothing but Python.
"""

import json
import sys
from typing import Any


def say(message: dict[str, Any]) -> None:
    """Send a message."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def place(free: list[int], nodes: list[int], gpus: int) -> list[list[int]]:
    """Take GPUs from the nodes with the most free ones, the first of equals."""
    taken: list[list[int]] = []
    for node in sorted(nodes, key=lambda node: (-free[node], node)):
        if gpus and free[node]:
            taken.append([node, min(gpus, free[node])])
            gpus -= taken[-1][1]
    return taken


def decide(jobs: dict[str, Any], free: list[int], up: list[bool], nodes: list[tuple[int, str]]) -> dict[str, Any]:
    """Run the jobs with the least work left that fit on one GPU type; who runs stays, the others go around them."""
    order = sorted(jobs, key=lambda name: (jobs[name]["left"], jobs[name]["turn"]))
    room = {kind: 0 for _, kind in nodes}
    for (gpus, kind), works in zip(nodes, up, strict=True):
        room[kind] += gpus * works
    chosen: dict[str, str] = {}
    actions: dict[str, Any] = {}
    for name in order:
        at, gpus = jobs[name]["at"], jobs[name]["gpus"]
        found = next((kind for kind in ([nodes[at[0][0]][1]] if at else room) if room[kind] >= gpus), None)
        if found is not None:
            room[found] -= gpus
            chosen[name] = found
    free = list(free)
    for name in order:
        if jobs[name]["at"] and name not in chosen:
            for node, gpus in jobs[name]["at"]:
                free[node] += gpus
            actions[name] = jobs[name]["at"] = []
    for name, kind in chosen.items():
        if not jobs[name]["at"]:
            of_kind = [node for node, (_, other) in enumerate(nodes) if other == kind]
            actions[name] = jobs[name]["at"] = place(free, of_kind, jobs[name]["gpus"])
            for node, gpus in jobs[name]["at"]:
                free[node] -= gpus
    return actions


def main() -> None:
    """Answer messages until the run ends."""
    jobs: dict[str, Any] = {}
    turn = 0
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "hello":
            nodes = [(gpus, kind) for count, gpus, kind in message["nodes"] for _ in range(count)]
            free, up = [gpus for gpus, _ in nodes], [True] * len(nodes)
            say({"type": "ready", "version": 1})
        elif message["type"] == "decide":
            for job in message.get("arrived", ()):
                turn += 1
                jobs[job["id"]] = {"gpus": job["num_gpus"], "left": 0.0, "turn": turn, "at": []}
            for name in message.get("finished", ()):
                jobs.pop(name, None)
            for name in message.get("lost", ()):
                jobs[name]["at"] = []
            for name, (left,) in message.get("told", {}).items():
                jobs[name]["left"] = left
            for node, gpus in message.get("free", ()):
                free[node] = gpus
            for node, works in message.get("up", ()):
                up[node] = works
            say({"type": "decision", "jobs": decide(jobs, free, up, nodes)})
        else:  # "end", or "refused" with the reason in "why"
            break


main()
