"""Runs at the server: announces every round to every silo, and averages what the silos release."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from rpdp.deployment.flower.server_run import run_server

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """One rpdp run; `strategy=` takes a Flower strategy of one's own to average with."""
    run_server(grid, context.run_config)
