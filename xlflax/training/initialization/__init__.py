"""Initialization of parameters from runs, vocabularies, teachers and averages."""
