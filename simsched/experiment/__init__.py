"""Experiments: the YAML, the grid of cells, the runner, the manifest, and the files of applications."""
