"""Commands that check and measure."""
