"""From findings to sections of the page: one module for each kind of suite. Nothing is computed here but means."""
