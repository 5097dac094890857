"""What a data steward may do to records: withdraw, lower, raise with a signature, prune stored updates."""
