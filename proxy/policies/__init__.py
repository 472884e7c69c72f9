"""Policies set while the proxy runs: kept on disk, laid over those of the file, audited, explained."""
