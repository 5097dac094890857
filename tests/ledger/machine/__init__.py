"""A model of the ledger, and a machine that plays with both: two processes, crashes, restored files, a wrong clock.

| module | what it holds |
|---|---|
| `forge` | a process that has everything imported and forks the others; runs as a program |
| `processes` | the tests' end of such a process: commands, SIGKILL, what came back |
| `session` | the processes' end: one open ledger and the commands on it |
| `model` | what a ledger should hold, from what was asked of it alone |
| `world` | the files, the server's memory, what is seen from outside, and the checks after every step |
| `rules` | the steps, for hypothesis to choose from |

Nothing here computes with the product's own arithmetic: amounts are exact fractions, and events are read by SQL.
"""
