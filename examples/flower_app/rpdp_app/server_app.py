"""Runs at the server. Silos protect their own records, so any strategy may average their updates."""

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam

from rpdp.deployment.flower.server_run import run_server

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Any strategy will do: it sees only what silos have released, so it costs no privacy."""
    run_server(grid, context.run_config, strategy=FedAdam(eta=0.05, beta_1=0.9, beta_2=0.99))
