"""Tests of logged losses by objective and language."""

import logging

from xlflax.training.metric_writers import terminal_writer

_TRAIN = {
  'loss': 5.0,
  'mlm/loss': 2.0,
  'mlm/loss/de': 2.5,
  'mlm/loss/en': 1.5,
  'mlm/accuracy/en': 0.5,
  'mlm/unigram_entropy_within_language': 6.0,
  'tlm/loss': 3.0,
}


def test_each_objective_has_a_log_line(caplog):
  caplog.set_level(logging.INFO)
  terminal_writer.Terminal().write(
    1200, {'train': _TRAIN, 'speed': {'mfu': 0.1}}
  )
  assert caplog.messages == [
    'step 1,200 | mlm loss 2.0000 | de 2.5000 | en 1.5000',
    'step 1,200 | tlm loss 3.0000',
  ]
  assert caplog.records[0].fields == {
    'step': 1200,
    'objective': 'mlm',
    'loss': 2.0,
    'by_language': {'de': 2.5, 'en': 1.5},
  }


def test_evaluations_are_not_logged(caplog):
  caplog.set_level(logging.INFO)
  terminal_writer.Terminal().write(5, {'eval': {'retrieval/loss': 0.5}})
  assert not caplog.messages
