"""General mutants: small changes that a tool makes anywhere in the code on which the promise rests.

The catalogue has bugs that somebody thought of; these are bugs that nobody thought of. `make mutation-sample` records
which tests run which line, draws a stratified sample of changes (cosmic-ray's operators, and removed statements), and
runs for each the tests that run the changed line, the fastest first. A survivor needs a new test, or a reason in
`equivalent.py` why it changes nothing that matters. The figures are in `docs/mutation-sample.md`.
"""
