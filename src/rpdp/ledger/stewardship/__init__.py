"""Actions of a data steward: withdraw records, lower budgets, raise them with a signature, prune stored updates."""
