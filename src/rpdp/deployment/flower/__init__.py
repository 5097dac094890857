"""Flower: the one place that imports it. `client_app` runs at a silo; `link` and `strategy` run at the server."""
