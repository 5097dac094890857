"""The Flower app of an rpdp federation; `rpdp deploy init` copies it, for its owner to change."""
