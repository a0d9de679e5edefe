"""Runs from Python: open one, then encode, evaluate and translate with it."""
