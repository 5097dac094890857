"""The Flower app of a silo with Flower's own SuperNode: passes a frame to the silo's agent and the answer back.

Flower starts a new process for every message, and whoever submits an app can run other code here. `rpdp silo node` does
neither; this is for silos that cannot use it. The `pyproject.toml` of a Flower app names this installed module:
`clientapp = "rpdp.deployment.flower.client_app:app"`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flwr.clientapp import ClientApp

from rpdp.deployment.flower.frame_record import carry

if TYPE_CHECKING:
    from flwr.app import Context, Message

SOCKET = "socket"

app = ClientApp()


@app.train()
def answer(message: Message, context: Context) -> Message:
    """Ask the agent whose socket the node config names."""
    return carry(message, str(context.node_config.get(SOCKET)))
