"""The smallest Flower app: each silo tells what its ClientApp sees, the ServerApp writes down all that it hears."""

from __future__ import annotations

from pathlib import Path

PROJECT = """
[project]
name = "echo"
version = "1.0.0"
description = "Each silo tells what its ClientApp sees"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "rpdp"

[tool.flwr.app.components]
serverapp = "echo.server_app:app"
clientapp = "echo.client_app:app"

[tool.flwr.app.config]
out = ""
rounds = 2
silos = 2
fail = ""
"""

CLIENT = """
import os
from flwr.app import ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()

@app.train()
def train(message, context):
    told = {**context.node_config, "round": message.content["round"]["number"], "environment": sorted(os.environ)}
    return Message(RecordDict({"told": ConfigRecord(told)}), reply_to=message)
"""

SERVER = """
import json
import time
from pathlib import Path
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()

@app.main()
def main(grid, context):
    config = context.run_config
    heard = []
    if config["fail"]:
        raise RuntimeError(config["fail"])
    while len(nodes := list(grid.get_nodes())) < config["silos"]:
        time.sleep(0.2)
    names = {node.node_id: node.name for node in nodes}
    for number in range(config["rounds"]):
        content = RecordDict({"round": ConfigRecord({"number": number})})
        sent = time.time()
        left = set(grid.push_messages([Message(content, node, MessageType.TRAIN, ttl=60.0) for node in names]))
        while left:
            for reply in grid.pull_messages(left):
                left.discard(reply.metadata.reply_to_message_id)
                told = dict(reply.content["told"]) if reply.has_content() else {"error": reply.error.reason}
                node = reply.metadata.src_node_id
                heard.append({"at": time.time(), "sent": sent, "node": node, "name": names[node], **told})
            time.sleep(0.3)
    Path(config["out"]).write_text(json.dumps(heard))
"""


def write_echo_app(directory: Path) -> Path:
    """The app, in a new directory."""
    package = directory / "echo"
    package.mkdir(parents=True)
    (directory / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").touch()
    (package / "client_app.py").write_text(CLIENT)
    (package / "server_app.py").write_text(SERVER)
    return directory
