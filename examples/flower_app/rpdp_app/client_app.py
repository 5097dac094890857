"""Runs at every silo, in a new process for every message: it carries a frame to the silo's agent and back."""

from rpdp.deployment.flower.client_app import carrier

app = carrier()
