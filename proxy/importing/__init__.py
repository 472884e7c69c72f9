"""`sluice import`: the limits that a Pulsar broker has today, as Sluice's own configuration."""
