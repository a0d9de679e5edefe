"""A real encoder and a batch of words, in place of the other objectives'."""

from tests.objectives.finetuning.fixtures import batch, model

__all__ = ('batch', 'model')
