"""Measuring: this machine's ceilings, the two phases, and the sheet that keeps the results.

Importing this package is cheap and needs no torch; only `ceilings`, `phases`, `peer`, `bench` and
`doctor` do.
"""
