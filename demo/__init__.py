"""The whole job in a minute or two: `python -m demo` (what `make demo` runs)."""
