import dataclasses
import importlib

import numpy as np
import pytest

from tests.data.labeled_fake import FakeRows, FakeSource
from tests.errors import assert_mentions, raises_error
from xlflax.data import loader_factory
from xlflax.data.supervised import supervised_dataset, supervised_loader
from xlflax.data.supervised.featurizers import feature_cache
from xlflax.data.supervised.sources import example_source
from xlflax.data.tokenizers import base_vocabulary, vocabulary_spec
from xlflax.storage import manifests
from xlflax.utils import errors


class _Vocabulary(base_vocabulary.Vocabulary):
  spec = vocabulary_spec.VocabularySpec(
    size=64,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    mask_id=4,
    special_ids=(0, 1, 2, 3, 4),
    languages=('en', 'fr'),
  )
  needs_language = False
  hash = 'h'

  def language_id(self, code):
    return self.spec.languages.index(code)


def _dataset(**fields):
  return supervised_dataset.LabeledDatasetConfig(
    **(
      dict(
        name='train',
        source=FakeSource(),
        featurizer=FakeRows(),
        length=8,
        batch_size=4,
      )
      | fields
    )
  )


def _open(seed=0, cache_dir=None, **fields):
  return loader_factory.open_loader(
    _dataset(**fields), vocabulary=_Vocabulary(), seed=seed, cache_dir=cache_dir
  )


def _texts(opened, steps):
  return [opened.rows(step, 0, 4)['token_ids'][:, 1] - 10 for step in steps]


def test_batches_have_labels_and_declared_shapes():
  opened = _open(shuffle=False)
  batch = opened.rows(0, 0, 4)
  assert batch['token_ids'][:, :4].tolist() == [
    [1, 10, 2, 0],
    [1, 11, 2, 0],
    [1, 12, 2, 0],
    [1, 13, 2, 0],
  ]
  assert batch['labels'].tolist() == [0, 1, 0, 1]
  assert {key: (value.shape, value.dtype) for key, value in batch.items()} == {
    key: (value.shape, value.dtype) for key, value in opened.spec.items()
  }
  assert opened.spec == opened.dataset.batch_spec(_Vocabulary.spec)


def test_each_epoch_shuffles_all_rows():
  order = np.concatenate(_texts(_open(), range(5)))
  first, second = order[:10].tolist(), order[10:].tolist()
  assert sorted(first) == sorted(second) == list(range(10))
  assert first != second and first != sorted(first)


def test_batches_depend_only_on_seed_and_step():
  opened = _open()
  later = opened.rows(7, 0, 4)
  again = _open().rows(7, 0, 4)
  halves = [_open().rows(7, start, start + 2) for start in (0, 2)]
  for key in later:
    np.testing.assert_array_equal(later[key], again[key])
    np.testing.assert_array_equal(
      later[key], np.concatenate([half[key] for half in halves])
    )
  assert (_open(seed=1).rows(7, 0, 4)['token_ids'] != later['token_ids']).any()


def test_sampling_rates_follow_sizes_alpha_and_max_rate():
  sizes = (('en', 30), ('fr', 10))

  def sampled_rates(**fields):
    opened = _open(source=FakeSource(sizes=sizes), **fields)
    batches = [
      opened.rows(step, 0, 4)['language_ids'][:, 1] for step in range(128)
    ]
    return np.bincount(np.concatenate(batches), minlength=2) / 512

  assert sampled_rates().tolist() == [0.75, 0.25]
  assert sampled_rates(alpha=0.0).tolist() == [0.5, 0.5]
  assert sampled_rates(max_rate=0.625).tolist() == [0.625, 0.375]
  assert sampled_rates(splits=('fr',)).tolist() == [0.0, 1.0]


def test_one_language_batching():
  opened = _open(
    source=FakeSource(sizes=(('en', 8), ('fr', 8))), batching='one_language'
  )
  for step in range(16):
    assert len(set(opened.rows(step, 0, 4)['language_ids'][:, 1])) == 1


def test_statistics_count_dropped_examples():
  opened = _open(featurizer=FakeRows(unused=(1, 2)), max_examples=6)
  [part] = opened.statistics()
  assert (part.task, part.examples, part.rows, part.dropped) == ('en', 6, 4, 2)
  assert part.tokens == 12 and part.rate == 1.0
  assert opened.num_rows == 4


def test_cached_rows_are_reused(tmp_path, monkeypatch):
  first = _open(cache_dir=tmp_path).rows(3, 0, 4)
  monkeypatch.setattr(FakeSource, 'load', None)
  monkeypatch.setattr(FakeSource, 'fingerprint', _without_tensorflow)
  again = _open(cache_dir=tmp_path).rows(3, 0, 4)
  for key in first:
    np.testing.assert_array_equal(first[key], again[key])


def test_cached_rows_of_changed_examples_are_recomputed(tmp_path):
  _open(cache_dir=tmp_path)
  with_labels = _open(
    cache_dir=tmp_path, source=FakeSource(sizes=(('en', 12),))
  )
  assert with_labels.num_rows == 12
  (folder,) = (
    path
    for path in (tmp_path / 'labeled').iterdir()
    if path.name
    == supervised_loader._cache_folder(_dataset(), _Vocabulary(), tmp_path).name
  )
  table, cached_rows = feature_cache.FeatureTable.load(folder / 'en.npz')
  assert cached_rows.endswith(f' {FakeSource().fingerprint()}')
  table.save(folder / 'en.npz', cached_rows.rpartition(' ')[0] + ' 0123')
  manifests.record_files(folder, manifests.Kind.ROWS, ['en.npz'])
  assert _open(cache_dir=tmp_path).num_rows == 10
  assert feature_cache.FeatureTable.load(folder / 'en.npz')[1] == cached_rows


def test_cached_rows_of_a_changed_featurizer_are_recomputed(
  tmp_path, monkeypatch
):
  """The source code of a user-defined featurizer identifies its rows."""
  folders = []
  for package, offset in (('first', 1), ('moved', 1), ('changed', 2)):
    path = tmp_path / f'slt_{package}' / 'own_rows.py'
    path.parent.mkdir()
    path.write_text(
      'import dataclasses\n'
      'from tests.data.labeled_fake import FakeRows\n'
      f'OFFSET = {offset}\n'
      '@dataclasses.dataclass(frozen=True, kw_only=True)\n'
      'class OwnRows(FakeRows):\n'
      '  pass\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(f'slt_{package}.own_rows')
    dataset = _dataset(featurizer=module.OwnRows())
    folders.append(
      supervised_loader._cache_folder(dataset, _Vocabulary(), tmp_path).name
    )
  assert folders[0] == folders[1] != folders[2]


def test_cached_rows_of_other_inputs_are_rejected(tmp_path):
  """The rows are of another vocabulary, another part, or incomplete."""
  source = FakeSource(sizes=(('de', 10), ('en', 10)))
  other = _Vocabulary()
  other.hash = 'of other pieces'
  supervised_loader.LabeledLoader(
    _dataset(source=source), vocabulary=other, seed=0, cache_dir=tmp_path
  )
  (theirs,) = (tmp_path / 'labeled').iterdir()
  first = _open(cache_dir=tmp_path, source=source)
  (ours,) = set((tmp_path / 'labeled').iterdir()) - {theirs}
  rows = (ours / 'en.npz').read_bytes()
  for content, names in (
    ((theirs / 'en.npz').read_bytes(), ['de.npz', 'en.npz']),
    ((ours / 'de.npz').read_bytes(), ['de.npz', 'en.npz']),
    (rows, ['en.npz']),
  ):
    (ours / 'en.npz').write_bytes(content)
    manifests.forget_files(ours, ['de.npz', 'en.npz'])
    manifests.record_files(ours, manifests.Kind.ROWS, names)
    with pytest.raises(errors.CacheError):
      _open(cache_dir=tmp_path, source=source)
  (ours / 'en.npz').write_bytes(rows)
  manifests.record_files(ours, manifests.Kind.ROWS, ['de.npz', 'en.npz'])
  assert _open(cache_dir=tmp_path, source=source).identity == first.identity


def test_damaged_cache_file_is_named_in_the_error(tmp_path):
  _open(cache_dir=tmp_path)
  [file] = (tmp_path / 'labeled').glob('*/en.npz')
  file.write_bytes(file.read_bytes()[:100])
  with pytest.raises(errors.CacheError) as error:
    _open(cache_dir=tmp_path)
  assert str(file) in str(error.value)
  file.unlink()
  assert _open(cache_dir=tmp_path).num_rows == 10


def test_deleted_cache_files_are_recomputed(tmp_path):
  """Regression test: training used only the remaining parts."""
  source = FakeSource(sizes=(('de', 4), ('en', 6)))
  assert _open(cache_dir=tmp_path, source=source).num_rows == 10
  [file] = (tmp_path / 'labeled').glob('*/en.npz')
  file.unlink()
  assert _open(cache_dir=tmp_path, source=source).num_rows == 10
  assert file.exists()


def test_feature_table_keeps_rows_of_any_length():
  rows_by_example = [
    [{'a': np.array([1, 2, 300]), 'b': np.int32(7)}],
    [],
    [
      {'a': np.array([], np.int32), 'b': np.int32(-1)},
      {'a': np.array([70000]), 'b': np.int32(2)},
    ],
  ]
  table = feature_cache.FeatureTable.of(rows_by_example)
  assert table.num_rows == 3
  assert table.counts == {'examples': 3, 'unused': 1}
  assert [row['a'].tolist() for row in table.rows([2, 0, 1])] == [
    [70000],
    [1, 2, 300],
    [],
  ]
  assert [int(row['b']) for row in table.rows([0, 1, 2])] == [7, -1, 2]


@pytest.mark.parametrize(
  'fields, got',
  [({'length': 0}, 0), ({'alpha': -0.5}, -0.5), ({'batching': 'all'}, 'all')],
)
def test_invalid_settings_are_rejected(fields, got):
  with raises_error(errors.ConfigError, got=got):
    _dataset(**fields)


def test_missing_and_empty_parts_are_rejected():
  with raises_error(errors.CorpusError, mentions='sw'):
    _open(splits=('en', 'sw'))
  with raises_error(errors.CorpusError, mentions='en'):
    _open(featurizer=FakeRows(unused=tuple(range(10))))


def test_default_fingerprint_depends_on_the_examples():
  assert isinstance(FakeSource(), example_source.ExampleSource)
  assert FakeSource().fingerprint() == FakeSource().fingerprint()
  assert (
    FakeSource().fingerprint() != FakeSource(sizes=(('en', 9),)).fingerprint()
  )


def _without_tensorflow(self):
  raise ModuleNotFoundError('no seqio', name='seqio')


def test_truncated_rows_are_logged(caplog):
  """Featurizers with `cuts` truncate texts to the length."""

  @dataclasses.dataclass(frozen=True, kw_only=True)
  class TruncatingRows(FakeRows):
    cuts = True

  opened = _open(featurizer=TruncatingRows(), length=3)
  (part,) = opened.statistics()
  assert part.truncated == 10
  assert_mentions(caplog.text, 3, 10)
  assert _open(featurizer=TruncatingRows()).statistics()[0].truncated == 0
  assert _open(length=3).statistics()[0].truncated == 0


def test_blind_training_files_are_rejected():
  with raises_error(errors.CorpusError, mentions=(10, 'train', 'en')):
    _open(source=_Blind(), featurizer=FakeRows(unused=tuple(range(10))))


class _Blind(FakeSource):
  def load(self, part):
    return [dataclasses.replace(e, label=None) for e in super().load(part)]
