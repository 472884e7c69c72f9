"""Figures without a verdict: rates, delays, budgets, fairness, neighbours, headroom, proposals, usage, changes."""
