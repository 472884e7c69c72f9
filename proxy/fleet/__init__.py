"""A fleet: Sluices that hold one limit together. What carries its messages."""
