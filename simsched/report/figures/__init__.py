"""Figures of results and models, and all that needs matplotlib; tables and pages stand beside."""
