"""Data and maths of clusters, jobs and applications; no input or output."""
