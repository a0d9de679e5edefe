"""Dry runs and small training runs of ECS, MetaXLM, PPA and VECO models.

Each training run trains a tiny model for one row in a paper's result table.
"""
