"""The experiment: what its YAML may say, its checks and its grid of cells; running them is for `execution`."""
