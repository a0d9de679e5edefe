"""Fixtures with an encoder and a batch of words."""

from tests.objectives.finetuning.fixtures import batch, model

__all__ = ('batch', 'model')
