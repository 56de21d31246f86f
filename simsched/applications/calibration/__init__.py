"""Fitting applications to measurements and judging the fits; their file format belongs to `applications`."""
