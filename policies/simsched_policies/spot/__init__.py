"""Policies for spot markets: jobs with deadlines on nodes that come, go and cost by the hour."""
