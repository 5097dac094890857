"""The silo agent: a long-running process that holds the silo's data, budgets, ledger, randomness and training.

| module | purpose |
|---|---|
| `agent` | decides on requests and trains |
| `request_decoding` | decodes and checks what a server sends |
| `release_timing` | when answers leave |
| `socket_service` | listens on the Unix socket |
| `connections` | how many callers there may be, and how long each may take |
| `agent_client` | asks an agent; light enough to load for every message |
| `opening` | builds an agent from a silo file |
"""
