"""Selection of vocabulary size, recipe and steps for `xlflax pretrain`.

The vocabulary size grows with the square root of the text size, as does the
number of distinct words (Heaps' law). A text with a million tokens results in a
vocabulary of 8,000 tokens, as in docs/recipes.md. Short or uniform text results
in fewer subwords. On CPUs, the recipe is `recipes/small.gin`. On GPUs and TPUs,
it is the largest recipe for which the given time suffices to train on 20 tokens
per layer parameter (Hoffmann et al. 2022) while reading the text at most 40
times.
"""

import dataclasses
import itertools
import logging
import math
from typing import Any

from xlflax.cli import options as shared_options
from xlflax.utils import errors, plurals

_LOG = logging.getLogger(__name__)
_MAX_BYTES = 1 << 30  # Maximum number of bytes of text that are read.
_BYTES_PER_TOKEN = 4
_MAX_WORDS = 400_000  # A third of them exceeds every vocabulary size.
_MAX_EPOCHS = 40  # `xlflax train` warns above this number.
_TOKENS_PER_PARAMETER = 20
_TIMED_STEPS = 5
_RECIPES = ('small', 'medium', 'base')


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainSettings:
  """Settings of the commands that `xlflax pretrain` runs.

  Attributes:
    summary: Summary of the settings, as a shell comment.
    vocabulary_size: Size of the vocabulary.
    gin_files: Gin files for `xlflax train`.
    steps: Number of training steps.
    tasks: Evaluation tasks, separated by commas. Empty if there is no held-out
      text.
    split: Split on which the model is evaluated.
  """

  summary: str
  vocabulary_size: int
  gin_files: list[str]
  steps: int
  tasks: str
  split: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Budget:
  """Training budget in hours or in steps, and the gin options of the run."""

  hours: float | None
  steps: int | None
  gin: shared_options.GinOptions


@dataclasses.dataclass(frozen=True)
class _TextStatistics:
  """Approximate statistics of the monolingual text.

  Attributes:
    num_tokens: Number of tokens, estimated from the size of the text in bytes.
    num_characters: Number of distinct characters.
    num_words: Number of distinct words, at most `_MAX_WORDS`.
  """

  num_tokens: int
  num_characters: int
  num_words: int


def select_settings(
  corpus: Any,
  *,
  hours: float | None,
  steps: int | None,
  vocabulary_size: int | None,
  gin: shared_options.GinOptions,
) -> PretrainSettings:
  """Selects vocabulary size, recipe and steps for a corpus and the devices.

  Args:
    corpus: Corpus with the languages to train on.
    hours: Duration of the training in hours. Some steps are timed to determine
      the number of steps that fit into this duration. None if `steps` is given.
    steps: Number of training steps. None if `hours` is given.
    vocabulary_size: Size of the vocabulary. If None, it is selected based on
      the text.
    gin: The user's gin files and bindings, which override the recipe.

  Returns:
    The settings.
  """
  import jax

  text, device = _read_statistics(corpus), jax.devices()[0]
  if vocabulary_size is None:
    vocabulary_size = _select_vocabulary_size(text, device.platform)
  gin_files, steps = _select_recipe(
    _Budget(hours=hours, steps=steps, gin=gin),
    corpus,
    text.num_tokens,
    vocabulary_size,
    device.platform,
  )
  summary = (
    f'# {", ".join(corpus.languages)}: about {text.num_tokens:,} tokens; '
    f'{jax.device_count()} x {device.device_kind}; {gin_files[-1]}, '
    + plurals.format_count(steps, 'step')
  )
  tasks = {
    split: [
      *['perplexity'] * bool(corpus.monolingual_languages(split)),
      *['retrieval'] * bool(corpus.parallel_pairs(split)),
    ]
    for split in ('validation', 'test')
  }
  split = 'test' if tasks['test'] else 'validation'
  return PretrainSettings(
    summary=summary,
    vocabulary_size=vocabulary_size,
    gin_files=gin_files,
    steps=steps,
    tasks=','.join(tasks[split]),
    split=split,
  )


def _select_recipe(
  budget: _Budget,
  corpus: Any,
  num_tokens: int,
  vocabulary_size: int,
  platform: str,
) -> tuple[list[str], int]:
  """Selects the largest recipe for which the corpus has enough tokens.

  Returns:
    The gin files of the recipe and the number of training steps.
  """
  max_tokens: float = _MAX_EPOCHS * num_tokens
  if num_tokens >= _MAX_BYTES // _BYTES_PER_TOKEN:
    max_tokens = math.inf  # The corpus is larger than the text that was read.
  selected: tuple[list[str], int] | None = None
  for name in _RECIPES[: 1 if platform == 'cpu' else None]:
    gin_files = ['pretrain/mlm.gin', f'recipes/{name}.gin']
    if corpus.parallel_pairs():
      gin_files = [f'recipes/{name}_pairs.gin']
    trainer = _build_trainer(
      budget.gin, gin_files, vocabulary_size, len(corpus.languages)
    )
    config, dataset = trainer.model.config, trainer.datasets[0]
    tokens_per_step = dataset.batch_size * dataset.length
    layer_size = (
      4 * config.hidden_dim**2 + 2 * config.hidden_dim * config.mlp_dim
    )
    required_tokens = _TOKENS_PER_PARAMETER * config.num_layers * layer_size
    if selected and max_tokens < required_tokens:
      break
    steps = budget.steps
    if steps is None:
      assert budget.hours is not None
      seconds = _measure_step_seconds(
        trainer, f'recipes/{name}.gin', is_smallest=not selected
      )
      max_steps = min(
        3600 * budget.hours / seconds, max_tokens / tokens_per_step
      )
      steps = max(1, int(max_steps))
    if selected and steps * tokens_per_step < required_tokens:
      break
    selected = gin_files, steps
  assert selected is not None
  return selected


def _build_trainer(
  gin: shared_options.GinOptions,
  gin_files: list[str],
  vocabulary_size: int,
  num_languages: int,
):
  """Builds a trainer with a dummy vocabulary."""
  from xlflax import trainer
  from xlflax.config import gin_config
  from xlflax.data.tokenizers import vocabulary_spec

  configuration = gin_config.load_gin_files(
    [*gin_files, *gin.gin_file],
    ['TRAIN_STEPS=100000', *gin.gin_bindings],
    gin.gin_search_paths,
    macros={
      name: gin_config.Placeholder('unused')
      for name in ('MODEL_DIR', 'VOCABULARY')
    },
  )
  configuration.expect_build(trainer.Trainer)
  gin_config.check_bindings([configuration])
  return configuration.build(
    trainer.Trainer,
    vocabulary=vocabulary_spec.make_dummy_spec(
      vocabulary_size, num_languages=num_languages
    ),
  )


def _measure_step_seconds(
  trainer: Any, name: str, *, is_smallest: bool
) -> float:
  """Returns the seconds per step, or infinity if a recipe does not fit."""
  try:
    seconds = trainer.benchmark(steps=_TIMED_STEPS)['seconds_per_step'][
      'median'
    ]
  except Exception as error:
    if is_smallest or 'RESOURCE_EXHAUSTED' not in str(error):
      raise
    seconds = math.inf
  _LOG.info('%s: %.3f s per step', name, seconds)
  return seconds


def _read_statistics(corpus: Any) -> _TextStatistics:
  """Reads the monolingual text, or its first gigabyte.

  Raises:
    CorpusError: If the corpus does not contain monolingual training text.
  """
  from xlflax.data.corpus import line_reader

  if not corpus.monolingual_languages():
    raise errors.CorpusError(
      '`xlflax pretrain` requires monolingual training text, because its '
      'recipes train a masked language model, but the corpus contains only '
      'sentence pairs',
      where=str(corpus.directory),
      fix='Add text files such as mono/en.txt, or use `xlflax train` with '
      'objectives for sentence pairs.',
    )
  texts = itertools.chain.from_iterable(
    line_reader.read_text(path)
    for language in corpus.monolingual_languages()
    for path in corpus.text_files(language)
  )
  num_bytes, characters, distinct_words = 0, set[str](), set[bytes]()
  for _, line in texts:
    num_bytes += len(line)
    characters.update(line.decode('utf-8', 'replace'))
    if len(distinct_words) < _MAX_WORDS:
      distinct_words.update(line.split())
    if num_bytes >= _MAX_BYTES:
      break
  return _TextStatistics(
    num_bytes // _BYTES_PER_TOKEN, len(characters), len(distinct_words)
  )


def _select_vocabulary_size(text: _TextStatistics, platform: str) -> int:
  """Returns a vocabulary size, rounded down to two significant digits.

  Each character is a token. The number of subwords is at most a third of the
  number of words.
  """
  max_size = 16_000 if platform == 'cpu' else 128_000
  size = min(
    int(8 * math.sqrt(text.num_tokens)),
    text.num_characters + text.num_words // 3,
  )
  unit = 10 ** max(0, len(str(size)) - 2)
  min_size = text.num_characters + text.num_characters // 10 + 50
  return min(max_size, max(min_size, size // unit * unit))
