"""What a running proxy believes, held against what the broker says."""
