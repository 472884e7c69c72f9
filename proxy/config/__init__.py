"""The configuration: its keys and values, its sources, and its errors."""
