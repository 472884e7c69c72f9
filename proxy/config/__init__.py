"""The configuration: what can be written in it, where from, and what is said of mistakes."""
