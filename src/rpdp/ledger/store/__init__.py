"""Storage of a ledger on disk: database, hash chain, records, runs, writer lock, rollback detection."""
