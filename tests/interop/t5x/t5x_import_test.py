"""Conversion of T5X checkpoints to model directories."""

import dataclasses
import json
import shutil

import jax
import numpy as np
import pytest
import sentencepiece

from tests.errors import raises_error
from tests.interop.t5x import conftest
from xlflax import cli
from xlflax.data.tokenizers import vocabulary_training
from xlflax.interop.t5x import model_directory, t5x_import
from xlflax.models import encoder
from xlflax.models import encoder_config as model_config
from xlflax.objectives.pretraining import masked_lm
from xlflax.training import param_tree
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors

conftest.import_t5x('t5x.checkpoints')

from t5x import optimizers  # noqa: E402

from tests.interop.t5x import written_checkpoints  # noqa: E402
from xlflax.data.seqio_tasks import seqio_vocabulary  # noqa: E402
from xlflax.interop.t5x import objective_model  # noqa: E402
from xlflax.interop.t5x import t5x_models as own_models  # noqa: E402


def _tokens(seed, rows):
  return np.random.default_rng(seed).integers(1, rows, (2, 9)).astype(np.int32)


@pytest.fixture(scope='module')
def write_t5x_checkpoint(tmp_path_factory, toy_vocabulary):
  """Fixture that returns a T5X model, its parameters and a checkpoint."""
  arrays = {}

  def write(kind, orbax):
    if (kind, orbax) not in arrays:
      directory = tmp_path_factory.mktemp(kind)
      model = written_checkpoints.make_model(kind, len(toy_vocabulary))
      params = written_checkpoints.save_checkpoint(
        model, directory, orbax=orbax
      )
      arrays[kind, orbax] = model, params, directory / 'checkpoint_7'
    return arrays[kind, orbax]

  return write


@pytest.mark.parametrize(
  'kind, orbax, scan_layers',
  [
    ('v1.1', True, True),
    ('v1.1', False, False),
    ('first', True, True),
    ('scanned', True, False),
    ('scanned', False, True),
    ('unscanned', False, True),
  ],
)
def test_logits_equal_t5x(
  write_t5x_checkpoint, toy_vocabulary, tmp_path, kind, orbax, scan_layers
):
  model, params, checkpoint = write_t5x_checkpoint(kind, orbax)
  checked = t5x_import.check_t5x_import(
    checkpoint, vocabulary=toy_vocabulary, scan_layers=scan_layers
  )
  run = saved_run.load_run(
    model_directory.convert_t5x_checkpoint(checked, tmp_path / 'run')
  )
  assert run.steps == [7] and run.vocabulary == toy_vocabulary
  source, target = _tokens(0, 180), _tokens(1, 180)
  source[0, 6:] = 0
  segments = (source > 0).astype(np.int32)
  with jax.numpy_rank_promotion('allow'):
    expected = model.module.apply(
      {'params': params},
      source,
      target,
      np.ones_like(target),
      enable_dropout=False,
    )
  logits = jax.jit(
    lambda p: run.model.apply(
      {'params': p['model']},
      source,
      segment_ids=segments,
      decoder_token_ids=target,
    )
  )(run.restore_params(7))
  np.testing.assert_allclose(logits, expected, atol=2e-5)


def test_smaller_vocabulary_leaves_embeddings_unused(toy_vocabulary, tmp_path):
  model = written_checkpoints.make_model('v1.1', 192)  # T5X rounds the size up.
  params = written_checkpoints.save_checkpoint(model, tmp_path, orbax=True)
  checked = t5x_import.check_t5x_import(
    tmp_path / 'checkpoint_7', vocabulary=toy_vocabulary
  )
  encoder = model_directory.load_t5x_parameters(checked)['model']['encoder'][
    'token'
  ]
  table = params['token_embedder']['embedding']
  assert encoder.shape == (256, table.shape[1])
  np.testing.assert_array_equal(encoder[:180], table[:180])
  assert not np.any(encoder[180:])
  assert checked.model.config.vocab_size == 180


def test_larger_vocabulary_is_rejected(toy_vocabulary, tmp_path):
  written_checkpoints.save_checkpoint(
    written_checkpoints.make_model('v1.1', 170), tmp_path, orbax=True
  )
  with raises_error(errors.VocabularyError, mentions=(180, 170)):
    t5x_import.check_t5x_import(
      tmp_path / 'checkpoint_7', vocabulary=toy_vocabulary
    )


@pytest.fixture
def xlflax_model(toy_vocabulary, tmp_path):
  """An xlflax encoder as a T5X model, and its checkpoint."""
  module = encoder.Encoder(
    model_config.EncoderConfig(
      num_layers=2,
      hidden_dim=16,
      mlp_dim=32,
      num_heads=2,
      max_position_embeddings=32,
    )
  )
  model = own_models.EncoderModel(
    module=module,
    objective=masked_lm.MaskedLM(),
    layout='sentences',
    vocabulary=seqio_vocabulary.SeqioVocabulary(toy_vocabulary),
    optimizer_def=optimizers.adamw(0.1),
  )
  (tmp_path / 't5x').mkdir()
  params = written_checkpoints.save_checkpoint(
    model, tmp_path / 't5x', orbax=True
  )
  return model, module, params, tmp_path / 't5x' / 'checkpoint_7'


def test_xlflax_model_is_converted(
  xlflax_model, toy_vocabulary, toy_corpus, tmp_path
):
  model, module, params, checkpoint = xlflax_model
  run = saved_run.load_run(
    model_directory.convert_t5x_checkpoint(
      t5x_import.check_t5x_import(
        checkpoint, vocabulary=toy_vocabulary, model=module
      ),
      tmp_path / 'run',
    )
  )
  restored = run.restore_params(7)
  for name, array in param_tree.flatten_params(restored).items():
    np.testing.assert_array_equal(
      array,
      param_tree.flatten_params(objective_model.unfreeze_params(params))[name],
    )
  assert run.model == model.module
  batch = {
    'token_ids': _tokens(0, 180),
    'segment_ids': np.ones((2, 9), int),
    'language_ids': np.ones((2, 9), int),
  }
  assert model.eval_fn(restored, batch)[0] == model.eval_fn(params, batch)[0]


def test_command_converts_an_xlflax_model(
  xlflax_model, toy_vocabulary, tmp_path, capsys
):
  _, module, _, checkpoint = xlflax_model
  gin = tmp_path / 'model.gin'
  gin.write_text(
    '\n'.join(
      [
        'from __gin__ import dynamic_registration',
        'from xlflax.models import encoder_config as model_config',
        'from xlflax.models import encoder',
        'MODEL = @encoder.Encoder()',
        'encoder.Encoder.config = @model_config.EncoderConfig()',
      ]
      + [
        f'model_config.EncoderConfig.{name} = {value!r}'
        for name, value in (
          ('num_layers', 2),
          ('hidden_dim', 16),
          ('mlp_dim', 32),
          ('num_heads', 2),
          ('max_position_embeddings', 32),
        )
      ]
    )
  )
  vocabulary = tmp_path / 'vocabulary'
  vocabulary_training.write_vocabulary(
    toy_vocabulary,
    toy_vocabulary.description | toy_vocabulary.describe(),
    vocabulary,
  )
  command = [
    'convert',
    'from-t5x',
    str(checkpoint),
    f'--gin_file={gin}',
    f'--vocabulary={vocabulary}',
    f'--output={tmp_path / "run"}',
  ]
  assert cli.main([*command, '--dry_run']) == 0
  assert 'model/embeddings/token -> model/embeddings/token' in (
    capsys.readouterr().out
  )
  assert not (tmp_path / 'run').exists()
  assert cli.main(command) == 0
  assert 'parameters -> ' in capsys.readouterr().out
  assert json.loads((tmp_path / 'run' / 't5x.json').read_text()) == {
    'checkpoint': 'checkpoint_7',
    'step': 7,
  }
  assert cli.main(command) == 2
  assert capsys.readouterr().err


def test_xlflax_model_requires_a_model_gin_file(xlflax_model, toy_vocabulary):
  with pytest.raises(errors.ConfigError, match='--gin_file=models/SIZE.gin'):
    t5x_import.check_t5x_import(xlflax_model[-1], vocabulary=toy_vocabulary)


def test_all_problems_are_reported_at_once(xlflax_model, toy_vocabulary):
  _, module, _, checkpoint = xlflax_model
  other = module.clone(
    config=dataclasses.replace(
      module.config,
      mlp_dim=24,
      use_language_embeddings=True,
      embedding_norm=False,
    )
  )
  with pytest.raises(errors.CheckpointError) as caught:
    t5x_import.check_t5x_import(
      checkpoint, vocabulary=toy_vocabulary, model=other
    )
  for part in (
    'model/embeddings/language is missing',
    'model/embeddings/norm/scale is not part of',
    'model/layers/mlp/wi/kernel has the shape (2, 16, 32)',
  ):
    assert part in str(caught.value)


def test_folders_without_a_checkpoint_are_rejected(
  tmp_path, toy_vocabulary, write_t5x_checkpoint
):
  _, _, checkpoint = write_t5x_checkpoint('v1.1', True)
  with pytest.raises(
    errors.CheckpointError, match='What to do: Pass .*checkpoint_7'
  ):
    t5x_import.check_t5x_import(checkpoint.parent, vocabulary=toy_vocabulary)
  with pytest.raises(errors.CheckpointError, match='MODEL_DIR/checkpoint_1000'):
    t5x_import.check_t5x_import(tmp_path, vocabulary=toy_vocabulary)


@pytest.mark.parametrize('orbax', [True, False])
def test_damaged_checkpoint_is_rejected(
  write_t5x_checkpoint, toy_vocabulary, tmp_path, orbax
):
  _, _, checkpoint = write_t5x_checkpoint('v1.1', orbax)
  copy = tmp_path / 'checkpoint_7'
  shutil.copytree(checkpoint, copy)
  name = 'checkpoint' if not orbax else 'state/_METADATA'
  (copy / name).write_bytes((copy / name).read_bytes()[:100])
  with pytest.raises(errors.CheckpointError):
    t5x_import.check_t5x_import(copy, vocabulary=toy_vocabulary)


def test_missing_array_is_rejected(
  write_t5x_checkpoint, toy_vocabulary, tmp_path
):
  _, _, checkpoint = write_t5x_checkpoint('v1.1', False)
  copy = tmp_path / 'checkpoint_7'
  shutil.copytree(checkpoint, copy)
  folders = [p for p in copy.iterdir() if p.is_dir()]
  if not folders:
    pytest.fail(f'no TensorStore folder in {sorted(copy.iterdir())}')
  folder = next(p for p in folders if p.name.startswith('target.'))
  shutil.rmtree(folder)
  with pytest.raises(errors.CheckpointError):
    t5x_import.check_t5x_import(copy, vocabulary=toy_vocabulary)


def test_command_converts_a_t5_tokenizer(tmp_path, toy_sentences, capsys):
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(toy_sentences['en']),
    vocab_size=60,
    model_prefix=str(tmp_path / 'spiece'),
    pad_id=0,
    eos_id=1,
    unk_id=2,
    bos_id=-1,
    minloglevel=2,
  )
  (tmp_path / 't5x').mkdir()
  written_checkpoints.save_checkpoint(
    written_checkpoints.make_model('v1.1', 256), tmp_path / 't5x', orbax=True
  )
  assert (
    cli.main(
      [
        'convert',
        'from-t5x',
        str(tmp_path / 't5x' / 'checkpoint_7'),
        f'--tokenizer={tmp_path}',
        '--languages=en,de',
        f'--output={tmp_path / "run"}',
      ]
    )
    == 0
  )
  run = saved_run.load_run(tmp_path / 'run')
  assert run.model.config.table_size == 256
  assert run.model.config.vocab_size == len(run.vocabulary) == 160
  assert len(run.vocabulary.spec.sentinel_ids) == 100
