"""Corruption of model inputs: token masking, span corruption, infilling."""
