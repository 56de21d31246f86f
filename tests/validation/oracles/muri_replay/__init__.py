"""A plain replay of the simulator of Muri (SIGCOMM'22), apart from the engine, to hold the engine against."""

from tests.validation.oracles.muri_replay.antman import replay_antman
from tests.validation.oracles.muri_replay.inputs import Job, read_jobs
from tests.validation.oracles.muri_replay.interleaving import Muri, recorded, replay_muri
from tests.validation.oracles.muri_replay.queues import replay_shortest, replay_tiresias
from tests.validation.oracles.muri_replay.record import Figures, figures

__all__ = [
    "Figures",
    "Job",
    "Muri",
    "figures",
    "read_jobs",
    "recorded",
    "replay_antman",
    "replay_muri",
    "replay_shortest",
    "replay_tiresias",
]
