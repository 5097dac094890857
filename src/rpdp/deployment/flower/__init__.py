"""A federation on Flower; the only package that imports flwr.

| module | purpose |
|---|---|
| `silo_node`, `fleet_link` | run at a silo: take frames to the agent and the answers back, and execute nothing |
| `frame_record`, `client_app` | a frame in a message, and its carrier; the same for Flower's own SuperNode |
| `server_run`, `grid_link`, `strategy_backbone` | run at the server: the ServerApp, its link to the silos, averaging |
| `flower_processes`, `environment` | start and stop a SuperLink, nodes and SuperNodes |
| `control` | register silos, submit runs, follow them |
| `app_template` | the Flower app that `rpdp deploy init` copies |
"""
