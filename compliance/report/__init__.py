"""What is made of the verdicts: one HTML page that needs nothing else, JSON and CSV."""
