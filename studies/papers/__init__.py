"""Dry runs and tiny training runs of the ECS, MetaXLM, PPA and VECO models.

The tiny runs correspond to rows in the papers' result tables.
"""
