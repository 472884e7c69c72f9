"""Load and a stand-in broker, to see Sluice at work. Never imports the limiter that it measures."""
