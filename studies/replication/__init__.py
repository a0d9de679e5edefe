"""The papers' claims as experiments: runs, intervals, verdicts, a page."""
