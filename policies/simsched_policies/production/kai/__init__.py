"""Queues, pod groups and nodes as NVIDIA's KAI-Scheduler treats them: one round of its actions on a snapshot.

Everything but `policy` is without clock and engine: `round` takes a snapshot and says what happens to which pod.
"""
