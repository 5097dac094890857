"""An rpdp app with a strategy of its own."""
