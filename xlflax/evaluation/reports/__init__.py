"""Scores of one or several models as tables, pages and pictures."""
