"""Tests of transferring embeddings between vocabularies."""

import dataclasses
import json
import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from tests.errors import assert_mentions, raises_error
from tests.training.vocabularies import Pieces
from xlflax.data.corpus import corpus_directory as corpus
from xlflax.data.corpus import corpus_writer
from xlflax.data.tokenizers import vocabulary_training
from xlflax.models import encoder, encoder_decoder, model_params
from xlflax.models import encoder_config as model_config
from xlflax.models import encoder_decoder_config as pair_config
from xlflax.training import param_tree, train_state
from xlflax.training.checkpointing import checkpoints
from xlflax.training.initialization import (
  embedding_transfer,
  vocabulary_matching,
)
from xlflax.training.initialization import init_from as initialization
from xlflax.training.initialization.vocabulary_matching import (
  EmbeddingNorms,
  EmbeddingTransfer,
  UnmatchedEmbeddings,
)
from xlflax.utils import errors

_SIZES = dict(
  hidden_dim=8,
  mlp_dim=12,
  num_heads=2,
  vocab_size=31,
  pad_vocab_size_multiple=1,
)
_TARGET = Pieces(('▁the', '▁The', 'ing', '▁Hund', '▁дом', '▁xyz'))
_SOURCE = Pieces(('Ġthe', 'ing', 'Ġdog', 'Ġcat'))
_MATCHING = vocabulary_matching.match_tokens(
  _TARGET, _SOURCE, [('hund', 'dog')]
)
_RESCALED = dict(
  norms=EmbeddingNorms.INITIALIZED, unmatched=UnmatchedEmbeddings.RANDOM
)
_ROWS = embedding_transfer.MatchedRows(
  _TARGET, _SOURCE, _MATCHING, 'runs/en', **_RESCALED
)
_AS_THEY_ARE = embedding_transfer.MatchedRows(
  _TARGET, _SOURCE, _MATCHING, unmatched=UnmatchedEmbeddings.RANDOM
)


def _one_device():
  return jax.sharding.SingleDeviceSharding(jax.devices()[0])


@pytest.mark.parametrize('axis', [0, 1])
@pytest.mark.parametrize('extra', [0, 5])
def test_rows_of_matched_tokens_are_copied(axis, extra):
  """Padding rows beyond the vocabulary keep their random values."""
  rng = np.random.default_rng(0)
  fresh = rng.normal(size=(11 + extra, 4)).astype(np.float32)
  source = rng.normal(size=(9 + extra, 4)).astype(np.float32)
  want = fresh.copy()
  for i, j in enumerate(_MATCHING.source_ids):
    if j >= 0:
      want[i] = source[j]
  if axis:
    fresh, source, want = fresh.T, source.T, want.T
  assert _ROWS.axis(fresh.shape, source.shape) == axis
  got = _AS_THEY_ARE.fill(
    jnp.asarray(fresh), jnp.asarray(source), _one_device()
  )
  np.testing.assert_array_equal(got, want)
  assert (want != fresh).any(1 - axis).sum() == 9


@pytest.mark.parametrize('axis', [0, 1])
def test_matched_rows_are_rescaled_to_the_norm_of_random_rows(axis):
  """Directions and ratios of norms are preserved."""
  rng = np.random.default_rng(0)
  fresh = rng.normal(size=(16, 4)).astype(np.float32)
  source = 10 * rng.normal(size=(9, 4)).astype(np.float32)
  fresh[11:] = 0.0  # padding rows
  arrays = (fresh.T, source.T) if axis else (fresh, source)
  rows = embedding_transfer.MatchedRows(
    _TARGET, _SOURCE, _MATCHING, **_RESCALED
  )
  got = np.asarray(
    rows.fill(*map(jnp.asarray, arrays), _one_device(), name='a/token')
  )
  got = got.T if axis else got
  ids = _MATCHING.source_ids
  transferred_rows = np.flatnonzero(ids >= 0)
  norms = np.linalg.norm(got[transferred_rows], axis=1)
  ratios = norms / np.linalg.norm(source[ids[transferred_rows]], axis=1)
  np.testing.assert_allclose(ratios, ratios[0], rtol=1e-5)
  other_norms = np.linalg.norm(fresh[:11][ids < 0], axis=1)
  np.testing.assert_allclose(
    np.median(norms), np.median(other_norms), rtol=1e-5
  )
  np.testing.assert_array_equal(got[:11][ids < 0], fresh[:11][ids < 0])
  assert not got[11:].any()
  median_norms = rows.summary()['median_norms']['a/token']
  assert (
    median_norms['matched']
    == median_norms['initialized']
    < median_norms['source']
  )


@pytest.mark.parametrize('shape', [(4,), ()], ids=['embeddings', 'biases'])
def test_unmatched_rows_are_the_mean_of_the_transferred_rows(shape):
  """By default, transferred rows are not changed."""
  rng = np.random.default_rng(0)
  fresh = rng.normal(size=(16, *shape)).astype(np.float32)
  source = 10 * rng.normal(size=(9, *shape)).astype(np.float32)
  ids = _MATCHING.source_ids
  is_matched = np.pad(ids >= 0, (0, 5))
  rows = embedding_transfer.MatchedRows(_TARGET, _SOURCE, _MATCHING)
  filled = np.asarray(
    rows.fill(jnp.asarray(fresh), jnp.asarray(source), _one_device())
  )
  transferred = source[ids[ids >= 0]]
  np.testing.assert_array_equal(filled[is_matched], transferred)
  is_other = ~is_matched & (np.arange(16) < 11)
  assert is_other.any()
  np.testing.assert_allclose(
    filled[is_other], fresh[is_other] + transferred.mean(0), rtol=1e-5
  )
  np.testing.assert_array_equal(filled[11:], fresh[11:])


def test_norms_option_is_validated():
  assert EmbeddingTransfer(norms='source').norms is EmbeddingNorms.SOURCE
  with raises_error(
    errors.ConfigError, got='long', where='EmbeddingTransfer.norms'
  ):
    EmbeddingTransfer(norms='long')


def test_norms_are_unchanged_if_all_rows_are_matched():
  rows = embedding_transfer.MatchedRows(
    _SOURCE,
    _SOURCE,
    vocabulary_matching.match_tokens(_SOURCE, _SOURCE),
    **_RESCALED,
  )
  source = 10 * jnp.eye(9)
  np.testing.assert_array_equal(
    rows.fill(jnp.ones((9, 9)), source, _one_device()), source
  )


@pytest.mark.parametrize(
  'model',
  [
    encoder.Encoder(
      model_config.EncoderConfig(
        **_SIZES, num_layers=1, tie_word_embeddings=False
      )
    ),
    encoder.Encoder(model_config.EncoderConfig(**_SIZES, num_layers=1)),
    encoder_decoder.EncoderDecoder(
      pair_config.EncoderDecoderConfig(
        **_SIZES,
        family='t5',
        num_encoder_layers=1,
        num_decoder_layers=1,
        tie_word_embeddings=False,
      )
    ),
  ],
  ids=['untied', 'tied', 't5'],
)
def test_default_parameters_are_all_token_tables(model):
  """The default pattern matches the parameters with a row for each token."""
  shapes = param_tree.flatten_params(
    {
      'model': nn.unbox(
        jax.eval_shape(
          lambda: model_params.init_params(model, jax.random.key(0))
        )
      )
    }
  )
  rows = {name for name, leaf in shapes.items() if 31 in leaf.shape}
  assert len(rows) >= 2
  assert rows == {
    name
    for name in shapes
    if param_tree.matches_pattern(EmbeddingTransfer().parameters, name)
  }


def test_sharded_table_is_filled():
  mesh = Mesh(np.array(jax.devices()), ('fsdp',))
  fresh = jax.device_put(
    jnp.zeros((16, 8)), NamedSharding(mesh, PartitionSpec('fsdp', None))
  )
  source = jax.device_put(
    jnp.ones((9, 8)), NamedSharding(mesh, PartitionSpec(None, None))
  )
  got = _AS_THEY_ARE.fill(fresh, source, fresh.sharding)
  assert got.sharding == fresh.sharding
  assert np.asarray(got).any(1).sum() == 9


@pytest.mark.parametrize(
  ('shape', 'source_shape'),
  [((11, 4), (9, 5)), ((11,), (9, 1)), ((10, 4), (9, 4)), ((11, 4), (8, 4))],
)
def test_arrays_without_a_token_axis_are_not_matched(shape, source_shape):
  assert _ROWS.axis(shape, source_shape) is None


def test_report_contains_counts_and_matches(tmp_path, caplog):
  caplog.set_level('INFO')
  _ROWS.report(tmp_path)
  summary = json.loads((tmp_path / embedding_transfer.REPORT).read_text())
  counts = {
    'random': 2,
    'special': 5,
    'exact': 2,
    'normalized': 1,
    'dictionary': 1,
    'interpolated': 0,
  }
  assert summary['counts'] == counts
  assert summary['source'] == 'runs/en' and summary['target_size'] == 11
  assert summary['by_script'] == {
    'LATIN': counts | {'special': 0, 'random': 1},
    'SPECIAL': {**dict.fromkeys(counts, 0), 'special': 5},
    'CYRILLIC': {**dict.fromkeys(counts, 0), 'random': 1},
  }
  assert_mentions(caplog.text, 2, 5, 1, 0)
  table = (tmp_path / embedding_transfer.TABLE).read_text().splitlines()
  assert len(table) == 1 + len(_TARGET)
  assert table[6:12] == [
    '5\t▁the\texact\t5\tĠthe',
    '6\t▁The\tnormalized\t5\tĠthe',
    '7\ting\texact\t6\ting',
    '8\t▁Hund\tdictionary\t7\tĠdog',
    '9\t▁дом\trandom\t\t',
    '10\t▁xyz\trandom\t\t',
  ]


def test_report_contains_counts_by_language():
  target = Pieces(('▁the', '▁cat', '▁дом'), ('en', 'ru'))
  spec = dataclasses.replace(
    target.spec, language_words=(((7, 9),), ((9, 10),))
  )
  rows = embedding_transfer.MatchedRows(
    _Fixed(target, spec),
    _SOURCE,
    vocabulary_matching.match_tokens(target, _SOURCE),
  )
  by_language = rows.summary()['by_language']
  assert by_language['en']['exact'] == 2 and by_language['ru']['random'] == 1


class _Fixed:
  """Vocabulary with a given spec."""

  def __init__(self, vocabulary, spec):
    self._vocabulary, self.spec = vocabulary, spec

  def piece(self, i):
    return self._vocabulary.piece(i)

  def __len__(self):
    return len(self._vocabulary)


@pytest.fixture(scope='module')
def vocabularies(tmp_path_factory):
  """An English vocabulary in a run's directory, and one of two languages."""
  root = tmp_path_factory.mktemp('vocabularies')
  english = [
    'the cat sees the dog',
    'a house near the river',
    'the bird runs over water',
  ] * 5
  german = [
    'der kater sieht den hund',
    'ein haus nahe dem fluss',
    'der vogel rennt über wasser',
  ] * 5
  corpus_writer.write_monolingual(root / 'en', 'en', [english])
  for code, lines in (('en', english), ('de', german)):
    corpus_writer.write_monolingual(root / 'both', code, [lines])
  vocabulary_training.train_vocabulary(
    corpus.Corpus(root / 'en'),
    root / 'run' / 'vocabulary',
    size=64,
    model_type=vocabulary_training.ModelType.BPE,
  )
  shared_vocabulary = vocabulary_training.train_vocabulary(
    corpus.Corpus(root / 'both'),
    root / 'joint',
    size=90,
    model_type=vocabulary_training.ModelType.BPE,
  )
  return types.SimpleNamespace(
    root=root, run=root / 'run', both=shared_vocabulary
  )


def _params(size, value):
  return {
    'model': {
      'embeddings': {'token': jnp.full((size, 2), value)},
      'layers': {'query': jnp.full((2, 2), value)},
      'output_bias': jnp.full(size, value),
    }
  }


def _state(params):
  return train_state.TrainState(
    step=jnp.int32(0), params=params, opt_state={}, ema=(), objective_state={}
  )


@pytest.fixture(scope='module')
def run(vocabularies):
  """A run over the English vocabulary; row i of its table is i + 1."""
  size = 64
  params = _params(size, 1.0)
  params['model']['embeddings']['token'] *= jnp.arange(1, size + 1)[:, None]
  saved = checkpoints.Checkpoints(vocabularies.run)
  saved.save(_state(params), {})
  saved.close()
  return str(vocabularies.run)


def _apply(run, vocabulary, report_dir=None, **fields):
  params = _params(90, 0.0)
  shardings = jax.tree.map(lambda x: x.sharding, params)
  state = initialization.initialize_from_runs(
    initialization.InitFromCheckpoint(model_dir=run, **fields),
    _state(params),
    types.SimpleNamespace(shardings=types.SimpleNamespace(params=shardings)),
    vocabulary=vocabulary,
    report_dir=report_dir,
  )
  return param_tree.flatten_params(state.params['model'])


_FIND = EmbeddingTransfer(unmatched='random')


def test_body_and_matched_embeddings_are_initialized(
  run, vocabularies, tmp_path
):
  got = _apply(run, vocabularies.both, tmp_path, vocabulary_matching=_FIND)
  assert (got['layers/query'] == 1).all()
  matching = _FIND.match(vocabularies.both, _vocabulary_of(vocabularies))
  counts = matching.counts()
  assert counts['exact'] > 20 and counts['random'] > 10
  np.testing.assert_array_equal(
    got['embeddings/token'][:, 0], matching.source_ids + 1
  )
  np.testing.assert_array_equal(got['output_bias'], matching.source_ids >= 0)
  report = json.loads((tmp_path / embedding_transfer.REPORT).read_text())
  assert report['counts'] == counts and report['source'] == run


def _vocabulary_of(vocabularies):
  from xlflax.data.tokenizers import base_vocabulary

  return base_vocabulary.Vocabulary.load(vocabularies.run / 'vocabulary')


def test_dictionaries_match_translations(run, vocabularies, tmp_path):
  (tmp_path / 'en-de.txt').write_text('zebra der\nthe der\n')
  find = EmbeddingTransfer(dictionaries=(str(tmp_path),))
  source = _vocabulary_of(vocabularies)
  matching = find.match(vocabularies.both, source)
  der = vocabularies.both.piece_id('▁der')
  assert source.piece(matching.source_ids[der]) == '▁the'
  got = _apply(run, vocabularies.both, vocabulary_matching=find)
  assert got['embeddings/token'][der, 0] == matching.source_ids[der] + 1


@pytest.mark.parametrize(
  ('fields', 'body', 'embeddings'),
  [
    (
      dict(include=('/token$', 'output_bias'), vocabulary_matching=_FIND),
      False,
      True,
    ),
    (dict(exclude=('/token$', 'output_bias')), True, False),
  ],
)
def test_embeddings_or_body_can_be_excluded(
  run, vocabularies, fields, body, embeddings
):
  got = _apply(run, vocabularies.both, **fields)
  assert bool(got['layers/query'].all()) == body
  assert bool(got['embeddings/token'].any()) == embeddings
  assert bool(got['output_bias'].any()) == embeddings


def test_different_vocabulary_requires_matching(run, vocabularies):
  with pytest.raises(errors.CheckpointError) as raised:
    _apply(run, vocabularies.both)
  text = str(raised.value)
  assert 'token is (90, 2) here, (64, 2) in the checkpoint' in text
  assert 'set InitFromCheckpoint.vocabulary_matching' in text


def test_parameters_without_token_rows_are_rejected(run, vocabularies):
  with raises_error(errors.CheckpointError, mentions=(90, 64)):
    _apply(
      run,
      vocabularies.both,
      vocabulary_matching=EmbeddingTransfer(parameters=('query',)),
      include=('query',),
    )


def test_matching_without_included_tables_is_rejected(run, vocabularies):
  with pytest.raises(errors.ConfigError):
    _apply(
      run, vocabularies.both, vocabulary_matching=_FIND, include=('query',)
    )


def test_matching_requires_a_vocabulary(run):
  with pytest.raises(errors.VocabularyError):
    _apply(run, None, vocabulary_matching=_FIND)
