"""Tests of `xlflax train` with initial parameters of other runs."""

import json

import jax
import numpy as np
import pytest
from flax import linen as nn

from tests.end_to_end.conftest import write_corpus
from tests.errors import assert_mentions
from xlflax import cli
from xlflax.data.tokenizers import base_vocabulary
from xlflax.models import encoder, model_params
from xlflax.models import encoder_config as model_config
from xlflax.training import param_tree, train_state
from xlflax.training.checkpointing import (
  checkpoint_reader,
  checkpoints,
  run_directory,
)

_SIZES = dict(
  hidden_dim=16, mlp_dim=32, num_heads=2, max_position_embeddings=24
)
_BODY = r'model/(layers|embeddings/(norm|position))'


def _sizes(kind: str) -> list[str]:
  return [f'--gin.{kind}.{name}={value}' for name, value in _SIZES.items()]


@pytest.fixture(scope='module')
def root(tmp_path_factory):
  """A corpus of three languages with a joint and an English vocabulary."""
  root = tmp_path_factory.mktemp('runs')
  write_corpus(root / 'corpus')
  english = root / 'english' / 'mono'
  english.mkdir(parents=True)
  source = root / 'corpus' / 'mono' / 'en.txt'
  (english / 'en.txt').write_bytes(source.read_bytes())
  for corpus, size in (('corpus', 110), ('english', 48)):
    assert (
      cli.main(
        [
          'vocab',
          f'--corpus={root / corpus}',
          f'--output={root / corpus}_vocabulary',
          f'--size={size}',
        ]
      )
      == 0
    )
  return root


def _train(root, name, files, corpus, steps, *arguments):
  """Returns the losses of a run."""
  status = cli.main(
    [
      'train',
      *(f'--gin_file={file}' for file in files),
      f'--corpus={root / corpus}',
      f'--model_dir={root / name}',
      f'--vocabulary={root / corpus}_vocabulary',
      f'--gin.TRAIN_STEPS={steps}',
      '--gin.BATCH_SIZE=8',
      '--gin.WARMUP_STEPS=1',
      '--gin.trainer.Trainer.log_metrics_every=1',
      '--gin.CheckpointOptions.save_interval_steps=1',
      *arguments,
    ]
  )
  assert status == 0
  lines = (root / name / 'metrics.jsonl').read_text().splitlines()
  return [
    json.loads(line)['train']['loss']
    for line in lines
    if 'train' in json.loads(line)
  ]


def _params(root, name, step):
  path = checkpoint_reader.checkpoint_path(root / name, step)
  item = {
    n: np.broadcast_to(np.float32(0), shape)
    for n, shape in checkpoint_reader.saved_shapes(path).items()
  }
  return param_tree.flatten_params(
    checkpoint_reader.restore_subtree(
      path, 'params', param_tree.unflatten_params(item)
    )
  )


@pytest.fixture(scope='module')
def english(root):
  """The parameters of a monolingual encoder with (untrained) cross-attention.

  Its run directory is `root / 'en'`, with a checkpoint of step 2.
  """
  vocabulary_dir = root / 'english_vocabulary'
  config = model_config.with_vocabulary(
    model_config.EncoderConfig(num_layers=2, cross_attention=True, **_SIZES),
    base_vocabulary.Vocabulary.load(vocabulary_dir).spec,
  )
  model = encoder.Encoder(config)
  params = nn.unbox(model_params.init_params(model, jax.random.key(0)))
  (root / 'en').mkdir()
  run_directory.write_model(root / 'en', model)
  run_directory.copy_vocabulary(vocabulary_dir, root / 'en')
  saved = checkpoints.Checkpoints(
    root / 'en', checkpoints.CheckpointOptions(enable_async_checkpointing=False)
  )
  state = train_state.TrainState(
    step=np.int32(2),
    params={'model': params},
    opt_state=(),
    ema=(),
    objective_state={},
  )
  saved.save(state, {'seed': 0})
  saved.close()
  return _params(root, 'en', 2)


@pytest.mark.parametrize(
  'arguments',
  [
    ('--gin_file=pretrain/mlm.gin', '--gin.INIT_FROM="{}"'),
    (
      '--gin_file=pretrain/mlm.gin',
      '--gin_file=recipes/another_vocabulary.gin',
      '--gin.RUN="{}"',
    ),
  ],
)
def test_missing_source_run_is_reported_before_anything_is_written(
  root, capsys, arguments
):
  (root / 'good').mkdir(exist_ok=True)
  *files, binding = arguments
  status = cli.main(
    [
      'train',
      files[0],
      '--gin_file=models/tiny.gin',
      *files[1:],
      f'--corpus={root / "corpus"}',
      f'--model_dir={root / "new"}',
      f'--vocabulary={root / "corpus_vocabulary"}',
      '--gin.TRAIN_STEPS=1',
      binding.format(root / 'goood').replace('"', "'"),
    ]
  )
  assert status == 2
  assert_mentions(capsys.readouterr().err, root / 'goood', f'{root}/good')
  assert not (root / 'new').exists()


def _from_english(root, *more):
  file = root / 'init.gin'
  file.write_text(
    '\n'.join(
      [
        'from __gin__ import dynamic_registration',
        'from xlflax.training.initialization import decoder_initialization as decoder_initialization',
        'from xlflax.training.initialization import init_from as initialization',
        'from xlflax.training.optimization import optimizers',
        'from xlflax.training.initialization import vocabulary_matching',
        'INIT_FROM = @initialization.InitFromCheckpoint()',
        f'initialization.InitFromCheckpoint.model_dir = {str(root / "en")!r}',
        'initialization.InitFromCheckpoint.vocabulary_matching = '
        '@vocabulary_matching.EmbeddingTransfer()',
        *more,
      ]
    )
    + '\n'
  )
  return str(file)


@pytest.mark.slow
def test_frozen_body_is_unchanged_and_matched_embeddings_are_trained(
  root, english
):
  """The configuration is that of MetaXLM's "+freezing"."""
  init = _from_english(
    root,
    f'optimizers.AdamW.frozen = ({_BODY!r},)',
    "initialization.InitFromCheckpoint.unused = ('.*/cross_attention.*',)",
  )
  losses = _train(
    root,
    'frozen',
    ('pretrain/mlm.gin', 'models/tiny.gin', init),
    'corpus',
    2,
    *_sizes('EncoderConfig'),
    '--gin.LENGTH=16',
  )
  assert np.isfinite(losses).all()
  lines = (root / 'frozen/metrics.jsonl').read_text().splitlines()
  speed = json.loads(lines[-1])['speed']
  assert 0 < speed['goodput'] < 1
  parts = {k: v for k, v in speed.items() if k.startswith('run_seconds/')}
  assert len(parts) == 7 and min(parts.values()) >= 0
  assert sum(parts.values()) == pytest.approx(speed['run_seconds'])
  assert parts['run_seconds/compilation'] > 0
  got = _params(root, 'frozen', 2)
  body = [n for n in got if param_tree.matches_pattern((_BODY,), n)]
  assert len(body) > 15
  for name in body:
    np.testing.assert_array_equal(got[name], english[name], err_msg=name)
  report = json.loads(
    (root / 'frozen/report/vocabulary_matching.json').read_text()
  )
  assert report['counts']['exact'] > 20
  by_script = report['by_script']
  assert by_script['LATIN']['exact'] > by_script['CYRILLIC']['exact'] == 0
  table = (root / 'frozen/report/vocabulary_matching.tsv').read_text()
  the = next(
    line.split('\t')
    for line in table.splitlines()
    if line.split('\t')[2] == 'exact'
  )
  moved = (
    got['model/embeddings/token'][int(the[0])]
    - english['model/embeddings/token'][int(the[3])]
  )
  assert 0 < np.abs(moved).max() < 0.01  # two small steps


@pytest.mark.slow
def test_translation_model_is_initialized_from_an_encoder_and_averaged(
  root, english, capsys
):
  """Combines vocabulary matching and decoder initialization."""
  init = _from_english(
    root,
    'initialization.InitFromCheckpoint.decoder = '
    '@decoder_initialization.InitDecoderFromEncoder()',
    "decoder_initialization.InitDecoderFromEncoder.layers = 'first'",
  )
  losses = _train(
    root,
    'mt',
    ('pretrain/translation.gin', 'models/tiny_transformer.gin', init),
    'corpus',
    2,
    *_sizes('EncoderDecoderConfig'),
    '--gin.SIDE_LENGTH=16',
    '--gin.EncoderDecoderConfig.num_decoder_layers=1',
  )
  assert np.isfinite(losses).all()
  name = 'layers/cross_attention/key/kernel'
  first, last = (_params(root, 'mt', step) for step in (1, 2))
  np.testing.assert_array_equal(  # The learning rate of the first step is 0.
    first[f'model/decoder/{name}'], english[f'model/{name}'][:1]
  )
  assert (last[f'model/decoder/{name}'] != english[f'model/{name}'][:1]).any()
  assert (
    cli.main(
      [
        'convert',
        'average',
        f'--model_dir={root / "mt"}',
        '--last=2',
        f'--output={root / "mean"}',
      ]
    )
    == 0
  )
  capsys.readouterr()
  for key, value in _params(root, 'mean', 2).items():
    np.testing.assert_allclose(
      value, (first[key] + last[key]) / 2, rtol=1e-5, atol=1e-7
    )
