"""Queues, pod groups and nodes as NVIDIA's KAI-Scheduler treats them: one round of its actions on a snapshot.

Everything but `policy` is independent of clock and engine: `round` takes a snapshot and returns the fate of every pod.
"""
