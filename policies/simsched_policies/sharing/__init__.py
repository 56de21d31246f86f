"""Policies that put several jobs on one GPU, in turns or concurrently."""
