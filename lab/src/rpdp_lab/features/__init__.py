"""Data and models that only reproductions use, by name for study files. A change here makes cells stale."""
