"""Flower apps that do what those of a federation do, and note when: text, as they are written into the app's folder.

Both use one clock (`time.time`), so that their notes can be put side by side.
"""

from __future__ import annotations

SERVER_APP = """
import json
import time

from flwr.serverapp import ServerApp

from rpdp.deployment.flower.server_run import run_server
from rpdp.deployment.flower import grid_link

app = ServerApp()


class TimedGrid:
    def __init__(self, grid, path, block):
        self._grid, self._path, self._block, self._rounds = grid, path, block, 0
        self.get_nodes = grid.get_nodes

    def _note(self, **facts):
        with open(self._path, "a") as file:
            file.write(json.dumps(facts) + "\\n")

    def push_messages(self, messages):
        frames = [message.content["rpdp"]["frame"] for message in messages]
        is_round = any(b'"kind":"round"' in frame for frame in frames)
        self._rounds += is_round
        stock = is_round and (self._rounds - 1) // self._block % 2 == 1
        grid_link.POLL_SECONDS = {stock} if stock else {own}
        began = time.time()
        ids = list(self._grid.push_messages(messages))
        nodes = {{number: str(message.metadata.dst_node_id) for number, message in zip(ids, messages)}}
        self._note(what="push", began=began, ended=time.time(), round=is_round, stock=stock, nodes=nodes)
        return ids

    def pull_messages(self, ids):
        began = time.time()
        replies = list(self._grid.pull_messages(ids))
        answers = [reply.metadata.reply_to_message_id for reply in replies]
        self._note(what="pull", began=began, ended=time.time(), answers=answers)
        return replies


@app.main()
def main(grid, context):
    config = dict(context.run_config)
    run_server(TimedGrid(grid, {times!r} + config["run-id"], {block}), config)
"""
"""To be formatted with `times` (where notes go, before the run's name), `block`, and the pauses `stock` and `own`."""

CLIENT_APP = """
import json
import os
import time
from pathlib import Path

from flwr.clientapp import ClientApp

from rpdp.deployment.flower import client_app as thin

app = ClientApp()
ask = thin.ask
noted = {}


def _process_start():
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    up = float(Path("/proc/uptime").read_text().split()[0])
    return time.time() - (up - ticks / os.sysconf("SC_CLK_TCK"))


def timed(path, frame, *, timeout):
    noted["asked"] = time.time()
    answer = ask(path, frame, timeout=timeout)
    noted["answered"] = time.time()
    return answer


thin.ask = timed


@app.train()
def train(message, context):
    noted.update(called=time.time(), started=_process_start(), message=message.metadata.message_id)
    reply = thin.carry(message, context)
    noted["processor"] = time.process_time()
    path = Path(context.node_config["socket"]).with_name("times.jsonl")
    with path.open("a") as file:
        file.write(json.dumps(noted) + "\\n")
    return reply
"""
"""Notes lie beside the agent's socket."""
