"""The silo agent: a long-running process of the silo's own that holds data, budgets, ledger, randomness and training.

`protocol` is the wire, `client` asks (standard library only), `agent` decides and trains, `service` listens.
"""
