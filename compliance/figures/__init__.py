"""What is only measured: rates, delays, budgets, fairness, neighbours, headroom, proposals, usage, changes."""
