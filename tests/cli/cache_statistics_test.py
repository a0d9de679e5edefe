"""Tests of the statistics that `xlflax cache` prints."""

import types

from tests.errors import assert_mentions
from xlflax.cli import cache_statistics


def _meta(task, *sides, empty=0):
  return types.SimpleNamespace(
    task=task, split='train', statistics=sides, empty=empty
  )


def _side(language, sentences, tokens, unknown):
  return types.SimpleNamespace(
    language=language,
    sentences=sentences,
    tokens=tokens,
    tokens_per_sentence=tokens / sentences,
    unknown_rate=unknown / tokens,
  )


def test_unknown_tokens_are_logged_per_language(caplog):
  """Warns if more than 1 % of the tokens are unknown."""
  cache_statistics.log_unknown_tokens(
    [
      _meta('mono.en', _side('en', 10, 1000, 10)),
      _meta('pairs', _side('de', 10, 1000, 0), _side('ru', 10, 1000, 125)),
    ]
  )
  (record,) = caplog.records
  assert_mentions(record.getMessage(), '12.5', 'ru', 'pairs')


def test_unknown_tokens_of_several_splits_are_logged_once(caplog):
  metas = [
    _meta('mono.en', _side('en', 10, 1000, unknown)) for unknown in (20, 30)
  ]
  cache_statistics.log_unknown_tokens(metas)
  (record,) = caplog.records
  assert_mentions(record.getMessage(), '3.0', 'en', 'mono.en')


def test_table_has_a_row_per_side_and_a_total(capsys):
  cache_statistics.print_table(
    [
      _meta('mono.en', _side('en', 2000, 9000, 9), empty=3),
      _meta('pairs', _side('de', 4, 10, 0), _side('en', 4, 12, 0)),
    ]
  )
  out = capsys.readouterr().out
  rows = [line.split() for line in out.splitlines()]
  assert ['mono.en', 'train', 'en', '2,000', '9,000', '4.5', '0.100%'] in rows
  assert ['pairs', 'train', 'de', '4', '10', '2.5', '0.000%'] in rows
  assert ['total', '2,008', '9,022'] in rows
  assert ' 3 examples' in out
