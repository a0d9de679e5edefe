"""Suites of tasks: run, merged into one leaderboard."""
