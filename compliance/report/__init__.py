"""The report's output: one HTML page that needs nothing else, JSON and CSV."""
