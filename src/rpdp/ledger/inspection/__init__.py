"""Looking into a ledger without changing it: verify, explain one record, overview, export."""
