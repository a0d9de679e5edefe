"""Tests of the token store benchmark."""

import pytest

from benchmarks import token_stores


def test_stores_hold_the_same_tokens(tmp_path):
  token_stores.prepare_data(tmp_path, 1500)
  tokens_by_store = {}
  for store in token_stores.STORES:
    if store in ('mds', 'datasets'):  # not installed for tests
      continue
    num_tokens = token_stores.measure_store(tmp_path, store, 'write')['tokens']
    read = num_tokens
    if store != 'bare':
      read = token_stores.measure_store(tmp_path, store, 'read')['tokens']
    tokens_by_store[store] = num_tokens, read
  assert len(set(tokens_by_store.values())) == 1, tokens_by_store
  assert tokens_by_store['bare'][0] > 10_000


def test_iterate_batches_reads_every_line_once():
  batches = list(token_stores.iterate_batches(600))
  assert sorted(i for batch in batches for i in batch.tolist()) == [*range(600)]
  assert [batch.size for batch in batches] == [256, 256, 88]


def test_store_with_missing_library_is_skipped(monkeypatch):
  def run_module(module, *arguments, cores):
    if 'mds' in arguments:
      raise RuntimeError("ModuleNotFoundError: No module named 'streaming'")
    return {'tokens': 6, 'seconds': 2}

  monkeypatch.setattr(token_stores.measure, 'run_module', run_module)
  args = token_stores.argparse.Namespace(
    stores='bare,memmap,mds', rounds=2, work=token_stores.pathlib.Path('w')
  )
  assert token_stores._measure_rates(args, 'read') == {'memmap': 3.0}
  assert token_stores._measure_rates(args, 'write') == {
    'bare': 3.0,
    'memmap': 3.0,
  }
  monkeypatch.setattr(
    token_stores.measure, 'run_module', lambda *_, **__: _raise()
  )
  with pytest.raises(RuntimeError, match='another'):
    token_stores._measure_rates(args, 'read')


def _raise():
  raise RuntimeError('another error')
