"""Fixed features, and data and models of the reproduction, for study files.

A change of the numbers here changes results of cells: raise `RESULTS_VERSION` in `rpdp_lab.reproduction.cell`.
"""
