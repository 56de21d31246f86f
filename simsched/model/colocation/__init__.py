"""How fast jobs run that share a GPU; which jobs share one, and when, is decided elsewhere."""
