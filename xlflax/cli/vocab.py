"""`xlflax vocab`: trains or extends a vocabulary."""

import dataclasses
import json
import logging
import pathlib
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import annotated_types
import cyclopts

from xlflax.cli import options as shared_options
from xlflax.cli import output_paths
from xlflax.data.corpus import corpus_directory
from xlflax.data.corpus.corpus_directory import Corpus
from xlflax.data.tokenizers import text_sampling
from xlflax.data.tokenizers.vocabulary_config import (
  Anchors,
  ModelType,
  VocabularyConfig,
)
from xlflax.storage import bucket_staging, paths
from xlflax.utils import errors, progress_reporting, validation

_MAX_CHANGED_RATE = 0.01
# Options that have no effect on the sampling of a shard.
_TRAINING_OPTIONS = (
  'output',
  'size',
  'num_merges',
  'vocab_sharing',
  'extra_ids',
  'model_type',
  'alpha',
  'byte_fallback',
  'character_coverage',
  'normalization',
  'languages',
  'num_threads',
  'overwrite',
  'dry_run',
)


# Options that have no effect on the extension of a vocabulary.
_TRAINING_ONLY_OPTIONS = (
  'sample_dir',
  'num_merges',
  'vocab_sharing',
  'extra_ids',
  'model_type',
  'alpha',
  'byte_fallback',
  'normalization',
  'languages',
  'seed',
  'num_threads',
  'dry_run',
)


class _Increment(int):
  """Number of tokens to add, as in `--size=+8000`."""


def _parse_size(type_: Any, tokens: Sequence[cyclopts.Token]) -> int:
  """Parses '32000', '1e4' and '+8000'."""
  size = shared_options.parse_integer(type_, tokens)
  return _Increment(size) if tokens[0].value.startswith('+') else size


_Size = Annotated[
  int,
  cyclopts.Parameter(converter=_parse_size),
  annotated_types.Interval(ge=1, lt=2**31),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabOptions:
  """Trains a SentencePiece vocabulary, or adds tokens to a vocabulary.

  Attributes:
    corpus: Corpus directory. The vocabulary is trained on its training text.
      With --mixture, the tasks `corpus.*` are registered.
    mixture: SeqIO mixture or task to train on, in place of the corpus. The
      rates of the mixture are not used; --alpha determines the fraction of each
      language. Repeat the option for several mixtures.
    task_module: Module that registers SeqIO tasks, as an importable name or the
      path of a Python file. Repeat the option for several modules.
    tfds_data_dir: Directory that contains prepared TensorFlow Datasets.
    output: Directory to write the vocabulary to.
    sample_dir: Directory for a sample of the text. Jobs with --shard_index or
      --shard_from_env write their shard of the sample to this directory. A
      command without these options trains the vocabulary on the sample.
    extend: Directory of a trained or imported vocabulary to which tokens for
      new languages are added. All existing tokens keep their ids. The corpus
      contains text of the new languages, and of the languages whose token ids
      must not change.
    new_languages: Languages for which --extend adds tokens, separated by
      commas. Defaults to the languages of the corpus that the vocabulary does
      not list.
    allow_changed_ids: With --extend, also add tokens that change the token ids
      of training text in the other languages of the corpus. Such tokens shorten
      the text of the new languages further.
    size: Number of tokens, including special symbols. With one model per
      language, this is the size of each model. With --extend, the number of
      tokens to add, as in --size=+8000.
    num_merges: Number of BPE merges per model, used instead of --size. The
      vocabulary also contains the text's characters, the special symbols and,
      with --byte_fallback, 256 bytes. Requires --model_type=bpe.
    vocab_sharing: Sharing of tokens between languages. "joint" trains one model
      on all languages. The other values train one model per language. With
      "shared", identical strings in different languages are the same token.
      With "none", languages share only special symbols. With "separate", the
      ids of the languages overlap, for models with embeddings for each
      language.
    extra_ids: Number of sentinel symbols <extra_id_0>, <extra_id_1> and so on,
      for span corruption.
    model_type: Algorithm with which SentencePiece trains the model.
    alpha: Exponent alpha for sampling languages. A language with N sentences is
      sampled with a probability proportional to N^alpha. 1 samples languages in
      proportion to their text, and 0 samples them uniformly. Requires
      --vocab_sharing=joint. Defaults to 0.7.
    byte_fallback: Encode unknown characters as bytes.
    character_coverage: Fraction of the text's characters that the tokens must
      cover.
    normalization: Normalization rule of SentencePiece: nmt_nfkc, nfkc,
      nmt_nfkc_cf, nfkc_cf or identity. "cf" folds case. Only identity keeps
      every character, which translation needs.
    max_sentences: Maximum number of sentences that are read to train a model.
    languages: Additional languages for which a language symbol is added,
      separated by commas. They must not be languages of the corpus, which
      always have a symbol. Requires --vocab_sharing=joint.
    seed: Random seed for sampling sentences.
    num_threads: Number of threads for training. The resulting vocabulary may
      depend on this number.
    overwrite: Replace a vocabulary that was trained with different settings or
      text.
    dry_run: Validate the corpus and print the number of sentences to sample
      from each language without training.
  """

  corpus: str | None = None
  mixture: tuple[str, ...] = ()
  task_module: tuple[str, ...] = ()
  tfds_data_dir: str | None = None
  output: str | None = None
  sample_dir: str | None = None
  extend: str | None = None
  new_languages: shared_options.CommaSeparatedNames | None = None
  allow_changed_ids: bool = False
  size: _Size | None = None
  num_merges: shared_options.PositiveInt | None = None
  vocab_sharing: Literal['joint', 'shared', 'none', 'separate'] = 'joint'
  extra_ids: shared_options.NonNegativeInt = 0
  model_type: Literal['unigram', 'bpe'] = 'unigram'
  alpha: validation.SamplingExponent | None = None
  byte_fallback: bool = False
  character_coverage: Annotated[
    float, annotated_types.Interval(ge=0.98, le=1)
  ] = VocabularyConfig.character_coverage
  normalization: str = VocabularyConfig.normalization
  max_sentences: shared_options.PositiveInt = VocabularyConfig.max_sentences
  languages: shared_options.CommaSeparatedNames | None = None
  seed: Annotated[
    shared_options.Integer, annotated_types.Interval(ge=0, lt=2**32)
  ] = VocabularyConfig.seed
  num_threads: shared_options.NumWorkers = VocabularyConfig.num_threads
  overwrite: bool = False
  dry_run: bool = False
  format: shared_options.OutputOptions = shared_options.OutputOptions()
  shard: shared_options.ShardOptions = shared_options.ShardOptions()

  def __post_init__(self):
    if self.corpus is None and not self.mixture:
      raise errors.ConfigError(
        '`xlflax vocab` requires --corpus or --mixture',
        fix='Pass --corpus=DIR, or --mixture=NAME for SeqIO tasks.',
      )
    shared_options.check_requires(
      self,
      ['task_module', 'tfds_data_dir'],
      requires='--mixture',
      satisfied=bool(self.mixture),
    )
    shared_options.check_excludes(
      self,
      ['sample_dir'],
      excluded_by='--mixture',
      given=bool(self.mixture),
      fix='Remove --sample_dir. Only the text of a corpus directory can be '
      'sampled in several jobs.',
    )
    self._check_extension()
    is_sharded = self.shard != shared_options.ShardOptions()
    shared_options.check_excludes(
      self,
      [*_TRAINING_OPTIONS, 'json'],
      excluded_by='--shard_index or --shard_from_env',
      given=is_sharded,
    )
    shared_options.check_excludes(
      self,
      ['dry_run'],
      excluded_by='--sample_dir',
      given=self.sample_dir is not None,
    )
    shared_options.check_requires(
      self,
      ['shard_index', 'num_shards', 'shard_from_env'],
      requires='--sample_dir',
      satisfied=self.sample_dir is not None,
    )
    if not is_sharded and self.output is None:
      raise errors.ConfigError(
        '`xlflax vocab` requires --output, unless it writes a sample of the '
        'text',
        fix=(
          'Pass --output=DIR, or pass --sample_dir and --shard_index to '
          'write a sample.'
        ),
      )

  def _check_extension(self):
    """Raises ConfigError if --extend conflicts with other options."""
    shared_options.check_requires(
      self,
      ['new_languages', 'allow_changed_ids'],
      requires='--extend',
      satisfied=self.extend is not None,
    )
    shared_options.check_excludes(
      self,
      list(_TRAINING_ONLY_OPTIONS),
      excluded_by='--extend',
      given=self.extend is not None,
    )
    is_increment = isinstance(self.size, _Increment)
    if self.extend is not None and not is_increment:
      raise errors.ConfigError(
        '--extend requires the number of tokens to add, in the form --size=+N',
        got=self.size,
        fix='Pass a number with a plus sign, such as --size=+8000.',
      )
    if self.extend is None and is_increment:
      raise errors.ConfigError(
        f'--size=+{self.size} adds tokens to a vocabulary, so it requires '
        '--extend',
        fix='Pass --extend=VOCABULARY, or remove the plus sign.',
      )


EXAMPLES = r"""
Train 32,000 tokens, with small languages sampled more often:
  xlflax vocab --corpus=corpus --output=vocabulary --size=32000 --alpha=0.5

Train byte-pair encoding that encodes unknown characters as bytes:
  xlflax vocab --corpus=corpus --output=vocabulary --size=32000 \
      --model_type=bpe --byte_fallback

Train 40,000 merges per language and share identical strings:
  xlflax vocab --corpus=corpus --output=vocabulary --model_type=bpe \
      --num_merges=40000 --vocab_sharing=shared

Add 100 sentinels for span corruption:
  xlflax vocab --corpus=corpus --output=vocabulary --size=32000 --extra_ids=100

Train on the SeqIO tasks that my_tasks.py registers:
  xlflax vocab --mixture=news --task_module=my_tasks.py --output=vocabulary \
      --size=32000

Add 8,000 tokens for Swahili to a trained or imported vocabulary:
  xlflax vocab --extend=vocabulary --corpus=corpus --new_languages=sw \
      --size=+8000 --output=extended

Sample the text in 16 jobs, and train on the sample after the last one:
  xlflax vocab --corpus=corpus --sample_dir=sample --shard_index=3 \
      --num_shards=16
  xlflax vocab --corpus=corpus --sample_dir=sample --output=vocabulary \
      --size=32000

Validate the corpus, and print how many sentences would be sampled:
  xlflax vocab --corpus=corpus --output=vocabulary --size=32000 --dry_run
"""


def main(options: VocabOptions) -> None:
  """Trains a vocabulary, samples a shard of the text, or prints the plan."""
  for name in ('output', 'sample_dir'):
    output_paths.check_outside_corpus(
      options.corpus,
      getattr(options, name),
      content='vocabulary' if name == 'output' else 'sample',
      option=name,
    )
  shard = options.shard.resolve()
  if shard is not None:
    _sample_shard(options, _open_corpus(options), shard)
    return
  text = _open_text(options)
  if options.extend is not None:
    _extend(options, text)
    return
  settings = _settings(options)
  if options.dry_run:
    _print_plan(text, VocabularyConfig(**settings))
    return
  _train(options, text, settings)


def _open_corpus(options: VocabOptions) -> Corpus:
  """Opens the corpus directory."""
  assert options.corpus is not None  # Required without --mixture.
  return Corpus(options.corpus)


def _open_text(options: VocabOptions) -> text_sampling.MultilingualText:
  """Opens the corpus, or the mixtures after registering their tasks."""
  if options.corpus:
    from xlflax.data import corpus_checks

    corpus_checks.log_anomalies(_open_corpus(options))
  if not options.mixture:
    return _open_corpus(options)
  from xlflax.data.seqio_tasks import tensorflow_setup

  tensorflow_setup.load_tensorflow()
  from xlflax.data.seqio_tasks import (
    mixture_text,
    task_registration,
    task_samples,
  )

  task_registration.register_tasks(
    options.corpus, options.task_module, options.tfds_data_dir
  )
  text = mixture_text.MixtureText(options.mixture)
  task_samples.log_anomalies(text.tasks)
  return text


def _train(
  options: VocabOptions,
  text: text_sampling.MultilingualText,
  settings: dict[str, Any],
) -> None:
  """Trains the vocabulary, and prints its statistics."""
  from xlflax.data.tokenizers import (
    base_vocabulary,
    fertility,
    reservoir_sampling,
    vocabulary_training,
  )

  assert options.output is not None
  sample = None
  if options.sample_dir:
    sample = reservoir_sampling.read_reservoirs(
      options.sample_dir, _sample_origin(options, _open_corpus(options))
    )
  with (
    bucket_staging.stage_output(options.output) as output,
    progress_reporting.progress_name('training a vocabulary'),
  ):
    result = vocabulary_training.train_vocabulary(
      text, output, overwrite=options.overwrite, sample=sample, **settings
    )
  statistics = result.description['statistics']
  _warn_of_unknown_tokens(
    statistics, 'a higher --character_coverage or --byte_fallback'
  )
  _warn_of_changed_text(statistics, options.normalization)
  if options.format.json:
    summary = {'directory': options.output, 'statistics': statistics}
    print(json.dumps(summary), flush=True)
    return
  print(fertility.format_table(statistics))
  spec = result.spec
  print(
    f'\n{spec.size} tokens, {len(spec.languages)} languages: '
    f'{paths.to_path(options.output) / base_vocabulary.DESCRIPTION_FILE}'
  )
  for code, ranges in zip(spec.languages, spec.language_words, strict=False):
    num_words = sum(stop - start for start, stop in ranges)
    print(f'  {code:<10} {num_words:>12,} words')


def _extend(
  options: VocabOptions, text: text_sampling.MultilingualText
) -> None:
  """Extends a vocabulary, and prints its statistics."""
  from xlflax.data.tokenizers import (
    base_vocabulary,
    fertility,
    vocabulary_extension,
  )

  assert options.output is not None and options.extend is not None
  base_dir = bucket_staging.stage_input(options.extend)
  with (
    bucket_staging.stage_output(options.output) as output,
    progress_reporting.progress_name('extending a vocabulary'),
  ):
    result = vocabulary_extension.extend_vocabulary(
      _load_extensible(base_dir),
      text,
      output,
      base_dir=base_dir,
      overwrite=options.overwrite,
      size=int(options.size or 0),
      languages=tuple(filter(None, (options.new_languages or '').split(','))),
      preserve_text=not options.allow_changed_ids,
      character_coverage=options.character_coverage,
      max_sentences=options.max_sentences,
    )
  statistics = result.description['statistics']
  _warn_of_unknown_tokens(statistics, 'a higher --character_coverage')
  if options.format.json:
    summary = {'directory': options.output, 'statistics': statistics}
    print(json.dumps(summary), flush=True)
    return
  print(fertility.format_comparison(statistics))
  path = paths.to_path(options.output) / base_vocabulary.DESCRIPTION_FILE
  base_size = result.description[base_vocabulary.EXTENSION_FIELD]['base_size']
  size = result.spec.size
  print(
    f'\n{base_size} tokens, extended by {size - base_size} to {size}: {path}'
  )


def _load_extensible(directory: pathlib.Path) -> Any:
  """Loads a vocabulary in a format that can represent added tokens.

  tokenizer.json represents the ids of any extension. A SentencePiece model with
  the ids of fairseq, T5 or DeBERTa does not, because special tokens have the
  last ids. Such a model is converted to tokenizer.json.
  """
  from xlflax.data.tokenizers import fairseq_vocabulary, huggingface_vocabulary
  from xlflax.data.tokenizers.base_vocabulary import Vocabulary
  from xlflax.interop.huggingface.tokenizers import sentencepiece_files

  vocabulary = Vocabulary.load(directory)
  if not isinstance(
    vocabulary, fairseq_vocabulary.MovedSentencePieceVocabulary
  ):
    return vocabulary
  files = sentencepiece_files.convert_sentencepiece(vocabulary)
  if files is None:
    return vocabulary
  return huggingface_vocabulary.TokenizersVocabulary(
    files[huggingface_vocabulary.FILE],
    vocabulary.layout,
    description=vocabulary.description,
  )


def _warn_of_unknown_tokens(
  statistics: list[dict[str, Any]], remedy: str
) -> None:
  """Logs a warning if the text of a language has many unknown tokens.

  Args:
    statistics: Statistics of each language (`fertility.compute_fertility`).
    remedy: Options that reduce the number of unknown tokens.
  """
  from xlflax.data import corpus_checks

  rows = [
    row
    for row in statistics
    if row['unknown_rate'] > corpus_checks.MAX_UNKNOWN_RATE
  ]
  if not rows:
    return
  advice = f'Pass {remedy}.'
  if any(row['split'] != corpus_directory.TRAIN for row in rows):
    advice = (
      'Check whether this text differs from the training text in its letter '
      f'case, script or characters. Otherwise, pass {remedy}.'
    )
  logging.warning(
    'Many tokens are unknown to the vocabulary: %s. %s',
    ', '.join(
      f'{100 * row["unknown_rate"]:.1f} % in the {row["split"]} text of '
      f'{row["language"]}'
      for row in rows
    ),
    advice,
  )


def _warn_of_changed_text(
  statistics: list[dict[str, Any]], normalization: str
) -> None:
  """Logs a warning if encoding and decoding changes the text of a language."""
  changed = {
    row['language']: row['changed_rate']
    for row in statistics
    if row.get('changed_rate', 0) > _MAX_CHANGED_RATE
  }
  if changed and normalization != 'identity':
    logging.warning(
      'With the normalization %s, encoding and decoding changes a fraction of '
      'the sentences: %s. Models cannot generate the original characters, '
      'which limits translation scores. Pass --normalization=identity for '
      'translation.',
      normalization,
      ', '.join(f'{code} {100 * rate:.0f} %' for code, rate in changed.items()),
    )


def _sample_shard(
  options: VocabOptions, corpus: Corpus, shard: tuple[int, int]
) -> None:
  """Writes one shard of the text sample."""
  from xlflax.data.tokenizers import reservoir_sampling

  assert options.sample_dir is not None
  origin = _sample_origin(options, corpus)
  with progress_reporting.progress_name('drawing a sample'):
    sample = reservoir_sampling.draw_reservoirs(
      corpus, capacity=options.max_sentences, seed=options.seed, shard=shard
    )
  reservoir_sampling.write_reservoirs(options.sample_dir, shard, sample, origin)
  for language, sentences in sorted(sample.items()):
    print(f'{language:<10} {sentences.count:>12,} sentences')


def _sample_origin(options: VocabOptions, corpus: Corpus) -> Any:
  """Returns the description of the text and settings of a sample."""
  from xlflax.data.tokenizers import reservoir_sampling

  return reservoir_sampling.Origin.from_corpus(
    corpus, capacity=options.max_sentences, seed=options.seed
  )


def _settings(options: VocabOptions) -> dict[str, Any]:
  """Returns the constructor arguments for `Settings`."""
  return {
    'size': options.size,
    'merges': options.num_merges,
    'anchors': Anchors(options.vocab_sharing),
    'sentinels': options.extra_ids,
    'model_type': ModelType(options.model_type),
    'alpha': options.alpha,
    'byte_fallback': options.byte_fallback,
    'character_coverage': options.character_coverage,
    'normalization': options.normalization,
    'max_sentences': options.max_sentences,
    'seed': options.seed,
    'num_threads': options.num_threads,
    'languages': tuple(filter(None, (options.languages or '').split(','))),
  }


def _print_plan(
  text: text_sampling.MultilingualText, settings: VocabularyConfig
) -> None:
  """Validates the text and prints the number of sentences to sample."""
  from xlflax.data.tokenizers.vocabulary_training import sentence_quotas

  print('valid lines:')
  for name, count in text.validate().items():
    print(f'  {name:<28} {count:>12,}')
  model = (
    'a vocabulary'
    if settings.anchors is Anchors.JOINT
    else 'the model of each language'
  )
  alpha = '' if settings.alpha is None else f', alpha {settings.alpha}'
  print(f'\nsentences for {model}, {_format_size(settings)}{alpha}')
  print(f'  {"language":<10} {"available":>12} {"sampled":>12}')
  for quotas in sentence_quotas(text, settings).values():
    for language, quota in quotas.items():
      print(f'  {language:<10} {quota.available:>12,} {quota.drawn:>12,}')


def _format_size(settings: VocabularyConfig) -> str:
  """Formats a vocabulary's size or number of merges."""
  if settings.size is not None:
    return f'{settings.size} tokens'
  return f'{settings.merges} merges'
