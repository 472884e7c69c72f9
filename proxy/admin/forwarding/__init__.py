"""Passes on to the broker's own admin what Sluice does not serve."""
