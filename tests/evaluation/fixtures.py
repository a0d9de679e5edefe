"""Fixtures with a tiny vocabulary, model and corpus."""

import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import pytest
from flax import linen as nn

from xlflax.data.corpus import corpus_directory, corpus_writer
from xlflax.data.tokenizers import base_vocabulary, vocabulary_training
from xlflax.evaluation import eval_task
from xlflax.models import encoder, encoder_config, model_params
from xlflax.training import train_state
from xlflax.training.checkpointing import checkpoints, run_directory

_WORDS = {
  'de': 'der Hund schläft und die kleine Katze trinkt warme Milch'.split(),
  'en': 'the dog sleeps and the small cat drinks warm milk'.split(),
  'ja': 'いぬ が ねむる と ちいさな ねこ は ぎゅうにゅう を のむ'.split(),
}


def make_sentences(language: str, count: int) -> list[str]:
  """Returns different sentences; sentence i has the same meaning in all languages."""
  language_words = _WORDS[language]
  return [
    ' '.join(
      language_words[(i * i + i + k * (i % 4 + 1)) % len(language_words)]
      for k in range(2 + i % 5)
    )
    + f' {i}'
    for i in range(count)
  ]


@pytest.fixture(scope='session')
def sentences():
  return make_sentences


@pytest.fixture(scope='session')
def corpus(tmp_path_factory) -> str:
  """Corpus directory of de, en and ja with 40 test sentences and pairs."""
  directory = tmp_path_factory.mktemp('corpus')
  for split, count in (('train', 60), ('test', 40)):
    for language in _WORDS:
      corpus_writer.write_monolingual(
        directory, language, [make_sentences(language, count)], split=split
      )
    for pair in (('de', 'en'), ('en', 'ja')):
      corpus_writer.write_parallel(
        directory,
        pair,
        zip(*(make_sentences(x, count) for x in pair), strict=True),
        split=split,
      )
  return str(directory)


@pytest.fixture(scope='session')
def vocabulary_dir(corpus, tmp_path_factory) -> str:
  directory = tmp_path_factory.mktemp('vocabulary') / 'v'
  vocabulary_training.train_vocabulary(
    corpus_directory.Corpus(corpus), directory, size=76, num_threads=1
  )
  return str(directory)


@pytest.fixture(scope='session')
def vocabulary(vocabulary_dir) -> base_vocabulary.Vocabulary:
  return base_vocabulary.Vocabulary.load(vocabulary_dir)


@pytest.fixture(scope='session')
def model(vocabulary) -> encoder.Encoder:
  """Encoder with two layers of 16 dimensions and language embeddings."""
  return encoder.Encoder(
    encoder_config.with_vocabulary(
      encoder_config.EncoderConfig(
        num_layers=2,
        hidden_dim=16,
        mlp_dim=32,
        num_heads=2,
        max_position_embeddings=32,
        initializer_range=0.5,
        use_language_embeddings=True,
      ),
      vocabulary.spec,
    )
  )


@pytest.fixture(scope='session')
def eval_model(model, vocabulary) -> eval_task.EvalModel:
  params = nn.meta.unbox(model_params.init_params(model, jax.random.key(0)))
  return eval_task.EvalModel(
    model=model, params={'model': params}, vocabulary=vocabulary, batch_size=8
  )


@pytest.fixture(scope='session')
def with_batch_size(eval_model):
  return lambda size: dataclasses.replace(eval_model, batch_size=size)


@pytest.fixture(scope='session')
def make_run(eval_model, vocabulary_dir):
  """Function that writes a run directory with checkpoints at given steps."""

  def make(directory: pathlib.Path, steps=()) -> pathlib.Path:
    directory.mkdir(exist_ok=True)
    run_directory.write_model(
      directory, eval_model.model, vocabulary=eval_model.vocabulary
    )
    run_directory.copy_vocabulary(pathlib.Path(vocabulary_dir), directory)
    saved = checkpoints.Checkpoints(
      directory,
      checkpoints.CheckpointOptions(
        max_to_keep=None, enable_async_checkpointing=False
      ),
    )
    for step in steps:
      params = jax.tree.map(
        lambda x, s=step: x * (1 + s / 100), eval_model.params
      )
      saved.save(
        train_state.TrainState(
          step=jnp.int32(step),
          params=params,
          opt_state={'m': jnp.zeros(2)},
          ema=(),
          objective_state={},
        ),
        {'seed': 0},
      )
    saved.close()
    return directory

  return make
