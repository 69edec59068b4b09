"""What a run shows on the terminal while it trains."""
