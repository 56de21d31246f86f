"""The HTML page that gathers runs; the figures on it are drawn by `report.figures`."""
