"""The Flower app of an rpdp federation. `rpdp deploy init` copies it; change the copy as you like."""
