"""From samples of one round to lags and watermarks."""
