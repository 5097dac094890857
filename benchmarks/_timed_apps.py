"""A ServerApp that does what a federation's does, and notes when: text, as it is written into the app's folder."""

from __future__ import annotations

SERVER_APP = """
import json
import time

from flwr.serverapp import ServerApp

from rpdp.deployment.flower.server_run import run_server

app = ServerApp()


class TimedGrid:
    def __init__(self, grid, path):
        self._grid, self._path = grid, path
        self.get_nodes = grid.get_nodes

    def _note(self, **facts):
        with open(self._path, "a") as file:
            file.write(json.dumps(facts) + "\\n")

    def push_messages(self, messages):
        frames = [message.content["rpdp"]["frame"] for message in messages]
        is_round = any(b'"kind":"round"' in frame for frame in frames)
        began = time.time()
        ids = list(self._grid.push_messages(messages))
        self._note(what="push", began=began, ended=time.time(), round=is_round)
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
    run_server(TimedGrid(grid, {times!r} + config["run-id"]), config)
"""
"""To be formatted with `times`: where notes go, before the name of the run."""
