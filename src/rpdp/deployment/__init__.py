"""A federation in production: silo agents, Flower between them and the server, and the files that configure it.

| package or module | purpose |
|---|---|
| `agent` | a silo as a process: it holds data, budgets and ledger, and trains |
| `flower` | the only place that imports flwr: the silo's node, the server's run, their processes |
| `files` | silo file, directory of a federation, certificates and keys |
| `trial` | a whole federation on one machine |
| `processes`, `process_guard` | child processes, and making sure that none is left behind |
"""
