"""Tests of whether small models confirm observations from papers.

The results are reported in docs/measured/analysis.md.
"""
