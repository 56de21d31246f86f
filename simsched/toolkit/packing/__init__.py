"""Puts pods that ask for parts of GPUs on nodes one by one, and measures what stays unusable; no clock, no jobs."""
