"""A policy that another process decides, by messages on its standard streams or a Unix socket."""
