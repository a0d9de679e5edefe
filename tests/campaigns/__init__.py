"""Campaigns: random kills, file mutations and inputs, seeded and counted.

`make campaign` runs them and writes the table of docs/measured/reliability.md.
They are slow; a few cases of each run with the slow tests.
"""
