"""The mutation suite: seeded privacy bugs, each of which a named test of the ordinary suite must catch.

`python -m tests.mutants` (or `make mutants`) copies the source, puts one bug after the other into the copy, and runs
the tests that must notice it there. A bug that nobody notices is a hole in the tests, and an error. The table is in
`docs/mutants.md`.
"""
