"""An rpdp app that averages with a Flower strategy."""
