"""A federation on Flower: certificates and keys, Flower's processes, and what runs at a silo and at the server.

| module | what for |
|---|---|
| `certificates` | the authority, the server's certificate, the silos' keys |
| `flower` | start and stop a SuperLink and SuperNodes |
| `control` | register silos, submit an app, learn how its run ended |
| `processes`, `environment` | one process with its descendants; what Flower's processes run in |

These import no flwr: Flower's executables are run, those of the same installation.
"""
