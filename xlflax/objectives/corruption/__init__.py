"""Corruption of model inputs by token masking, span corruption or infilling."""
