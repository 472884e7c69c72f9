"""The real broker's own limits beside Sluice's, in one run: `python -m bench limits`."""
