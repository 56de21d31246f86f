"""Policies that choose how many GPUs a job trains on, and often its batch size, from how well it uses them."""
