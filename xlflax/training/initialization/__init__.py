"""Initialization of parameters from other runs, teachers and averages."""
