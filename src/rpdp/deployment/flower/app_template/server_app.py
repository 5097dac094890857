"""Runs at the server: announces every round to every silo and averages what the silos release."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from rpdp.deployment.flower.server_run import run_server

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run, or resume, one rpdp run. Pass `strategy=` to average with a Flower strategy."""
    run_server(grid, context.run_config)
