"""Data and models that only reproductions use, by name for run files. A change here makes cells stale."""
