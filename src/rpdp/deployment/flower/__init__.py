"""A federation on Flower; the only package that imports flwr.

| module | purpose |
|---|---|
| `client_app` | runs at a silo: takes a frame to the agent and the answer back |
| `server_run`, `grid_link`, `strategy_backbone` | run at the server: the ServerApp, its link to the silos, averaging |
| `flower_processes`, `environment` | start and stop a SuperLink and SuperNodes |
| `control` | register silos, submit runs, follow them |
| `app_template` | the Flower app that `rpdp deploy init` copies |
"""
