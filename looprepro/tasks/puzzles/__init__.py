"""The tasks of the fixed-point reasoners: examples by index, their grading, and the data behind them. Knows no model."""
