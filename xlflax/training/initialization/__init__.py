"""Initial parameters from runs, matched vocabularies, teachers and averages."""
