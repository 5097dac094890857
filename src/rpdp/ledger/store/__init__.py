"""How a ledger is kept on disk: database, hash chain, records, runs, the writer's lock, rollback detection."""
