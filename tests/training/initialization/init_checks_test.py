"""Tests that parameters are compatible with the model of another run."""

import types

import pytest

from tests.errors import assert_mentions, raises_error
from tests.training import tiny
from xlflax.training.checkpointing import run_directory
from xlflax.training.initialization import (
  init_checks,
  init_from,
  parameter_assignment,
  vocabulary_matching,
)
from xlflax.utils import errors

_POSITION = 'model/embeddings/position'


@pytest.fixture
def run(tmp_path):
  run_directory.write_model(
    tmp_path, tiny.make_model(max_position_embeddings=30, position_offset=2)
  )
  return str(tmp_path)


def test_different_position_offset_is_rejected(run):
  """Both tables have 32 rows."""
  names = [_POSITION, 'model/embeddings/token']
  assert init_checks.position_problems(run, names, tiny.make_model()) == [
    f'{_POSITION}: position 0 is row 0 in this model, row 2 in the checkpoint'
  ]


@pytest.mark.parametrize(
  'names, model',
  [
    ([_POSITION], tiny.make_model(position_offset=2)),
    (['model/embeddings/token'], tiny.make_model()),
    ([_POSITION], None),
  ],
)
def test_compatible_positions_have_no_problems(run, names, model):
  assert not init_checks.position_problems(run, names, model)


def test_directory_without_a_model_is_not_checked(tmp_path):
  assert not init_checks.position_problems(
    str(tmp_path), [_POSITION], tiny.make_model(position_offset=2)
  )


def test_mismatch_lists_sizes_and_three_parameters(run):
  init = init_from.InitFromCheckpoint(model_dir=run)
  problems = [f'model/{name} is (3,) here' for name in 'abcd']
  model = tiny.make_model(num_layers=3, max_position_embeddings=30)
  got, hint = init_checks.describe_mismatch(init, problems, model)
  sizes, *listed, more = got.split('; ')
  for model_config in (model.config, tiny.make_model().config):
    assert (
      f'num_layers={model_config.num_layers}, '
      f'hidden_dim={model_config.hidden_dim}, '
      f'vocab_size={model_config.vocab_size}'
    ) in sizes
  assert listed == problems[:3]
  assert '1' in more
  assert 'models/' in hint


def test_all_parameters_are_listed_for_equal_or_unknown_sizes(run, tmp_path):
  problems = [f'model/{name} is (3,) here' for name in 'abcd']
  for model, directory in (
    (tiny.make_model(), run),
    (None, run),
    (tiny.make_model(num_layers=3), str(tmp_path / 'empty')),
  ):
    init = init_from.InitFromCheckpoint(model_dir=directory)
    assert init_checks.describe_mismatch(init, problems, model) == (
      '; '.join(problems),
      '',
    )


def test_hint_contains_the_gin_file_of_the_model(run, tmp_path):
  assert 'model.json' in init_checks.build_hint(run)
  (tmp_path / 'model.gin').touch()
  assert f'--gin_file={tmp_path}/model.gin last' in init_checks.build_hint(run)


def _vocabulary(content, *languages):
  spec = types.SimpleNamespace(size=64, languages=languages)
  return types.SimpleNamespace(spec=spec, hash=content * 32)


def test_rows_of_a_different_vocabulary_are_rejected(tmp_path):
  """The vocabularies have the same size, so all shapes are equal."""
  run_directory.write_model(
    tmp_path, tiny.make_model(), vocabulary=_vocabulary('ab')
  )
  plain = init_from.InitFromCheckpoint(model_dir=str(tmp_path))
  rows = ['model/embeddings/token', 'model/output_bias', 'model/layers/x']
  init_checks.check_vocabulary(plain, rows, _vocabulary('ab'))
  init_checks.check_vocabulary(plain, rows, None)  # unknown vocabulary
  init_checks.check_vocabulary(plain, rows[2:], _vocabulary('cd'))
  matched = init_from.InitFromCheckpoint(
    model_dir=str(tmp_path),
    vocabulary_matching=vocabulary_matching.EmbeddingTransfer(),
  )
  init_checks.check_vocabulary(matched, rows, _vocabulary('cd'))
  with pytest.raises(errors.VocabularyError) as error:
    init_checks.check_vocabulary(plain, rows, _vocabulary('cd'))
  text = str(error.value)
  assert_mentions(error.value.what, 'this run', 'initial', 'model.json')
  assert _vocabulary('cd').hash[:12] in error.value.got
  assert _vocabulary('ab').hash[:12] in error.value.expected
  assert 'model/embeddings/token, model/output_bias' in text
  assert 'InitFromCheckpoint.vocabulary_matching' in text
  assert f'xlflax cache --vocabulary={tmp_path}/vocabulary' in error.value.fix
  # An unused parameter is reported together with the vocabulary.
  with raises_error(
    errors.CheckpointError, mentions=('model/x', f'{tmp_path}/vocabulary')
  ):
    init_checks.check_fit(
      plain,
      {name: parameter_assignment.Source((name,)) for name in rows[:2]},
      {'model/x': (1,), rows[0]: (1,)},
      tmp_path,
      None,
      _vocabulary('cd'),
    )


def test_rows_of_different_languages_are_rejected(tmp_path, monkeypatch):
  old = _vocabulary('ab', 'de', 'en')
  run_directory.write_model(tmp_path, tiny.make_model(), vocabulary=old)
  monkeypatch.setattr(
    init_checks.data_fingerprint, 'load_vocabulary', lambda _: old
  )
  init = init_from.InitFromCheckpoint(model_dir=str(tmp_path))
  rows = ['model/embeddings/language']
  init_checks.check_vocabulary(init, rows, _vocabulary('cd', 'de', 'en'))
  with raises_error(
    errors.VocabularyError,
    got='en, fr',
    expected='de, en',
    where='InitFromCheckpoint.model_dir',
    mentions='model/embeddings/language',
  ):
    init_checks.check_vocabulary(init, rows, _vocabulary('cd', 'en', 'fr'))
