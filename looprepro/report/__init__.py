"""Renders tables and figures from the two parquet files and the sweeps. Nothing here computes a statistic."""
