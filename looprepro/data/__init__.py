"""Data: prepares data sets on disk, from the hub, from local files or from what Python ships. Knows no task."""
