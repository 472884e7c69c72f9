"""Who may not pass: rules that operators set at run time, and what they end."""
