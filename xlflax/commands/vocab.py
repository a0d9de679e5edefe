"""`xlflax vocab`: trains a SentencePiece vocabulary."""

import argparse
from typing import Annotated

import annotated_types

from xlflax.cli import output_paths
from xlflax.commands.flags import json_lines, parsing
from xlflax.data.corpus.directory import Corpus
from xlflax.data.vocabularies.settings import (
  DEFAULT_ALPHA,
  Anchors,
  ModelType,
  Settings,
)
from xlflax.foundation import errors, flag_tables, progress
from xlflax.storage import mirrors, paths

HELP = (
  'Trains a SentencePiece vocabulary over the languages of a corpus, '
  'or one for each language.'
)

# What only training has a use for.
_TRAINING = (
  'output size merges anchors sentinels model_type alpha byte_fallback '
  'character_coverage normalization languages num_threads overwrite dry_run'
)
RULES = (
  parsing.Excludes(_TRAINING, 'shard'),
  parsing.Excludes('dry_run', 'sample'),
)
FLAGS = f"""
--corpus DIR (required): corpus directory; its training text is read
--output DIR: directory of the vocabulary
--sample DIR: train on the sample of the text in this directory, which --shard
  has written
--shard I/N (Shard): write the I-th of N shares of the sample to --sample, I
  from 0, and train nothing; "auto" asks the job
--size (Count): entries, special symbols included; of the model of each
  language, unless --anchors=joint
--merges (Count): instead of --size, with --model_type=bpe: pieces made by
  merging, of each model; there are as many entries more as the text has
  characters, and the special symbols (and 256 with --byte_fallback)
--anchors (one of {' '.join(kind.value for kind in Anchors)}, default
  {Settings.anchors.value}): joint: one model over all languages; else one for
  each language with training text. shared: identical strings are one entry;
  none: each entry carries its language; separate: ids overlap, for models with
  embeddings for each language
--sentinels (Natural, default {Settings.sentinels}): symbols <extra_id_0> ...
  that stand for dropped spans
--model_type (one of {' '.join(kind.value for kind in ModelType)}, default
  {Settings.model_type.value})
--alpha A (Share): languages are sampled p ~ N^A: 1 as they are, 0 all alike;
  with --anchors=joint only (default: {DEFAULT_ALPHA})
--byte_fallback (switch): encode unknown characters as bytes
--character_coverage C (Coverage, default {Settings.character_coverage}): share
  of characters that get a piece
--normalization RULE (default {Settings.normalization}): nmt_nfkc, nfkc,
  nmt_nfkc_cf, nfkc_cf (cf folds case) or identity
--max_sentences (Count, default {Settings.max_sentences}): sentences read for a
  model
--languages CODES: comma-separated; further languages to give a symbol; with
  --anchors=joint only
--seed (Seed, default {Settings.seed}): of the choice of sentences
--num_threads (Threads, default {Settings.num_threads}): whatever the machine,
  as the result may depend on it
--overwrite (switch): replace another vocabulary
{json_lines.FLAG}
--dry_run (switch): check the corpus, show the plan, write nothing
"""
FLAG_KINDS = {
  'Coverage': flag_tables.of(
    Annotated[float, annotated_types.Interval(ge=0.98, le=1)]
  )
}


def run(args: argparse.Namespace) -> int:
  """Trains, draws a share of a sample, or shows what would be done."""
  # Slow imports, after --help.
  from xlflax.data import corpus_oddities as oddities
  from xlflax.data.vocabularies import reservoir, training, vocabulary
  from xlflax.data.vocabularies import statistics as vocabulary_statistics

  output_paths.check_outside_corpus(
    args.corpus, args.output, content='vocabulary', option='output'
  )
  output_paths.check_outside_corpus(
    args.corpus, args.sample, content='sample', option='sample'
  )
  corpus = Corpus(args.corpus)
  if args.shard:
    return _draw(args, corpus)
  if args.output is None:
    raise errors.ConfigError(
      'Nothing says where the vocabulary goes',
      expected='--output, or --sample and --shard',
    )
  settings = _settings(args)
  oddities.warn(corpus)
  if args.dry_run:
    _show_plan(corpus, Settings(**settings))
    return 0
  drawn = None
  if args.sample:
    drawn = reservoir.read(args.sample, _origin(args, corpus))
  with (
    mirrors.output(args.output) as output,
    progress.named('training a vocabulary'),
  ):
    made = training.train_vocabulary(
      corpus, output, overwrite=args.overwrite, drawn=drawn, **settings
    )
  if args.json:
    found = made.description['statistics']
    json_lines.show([{'directory': args.output, 'statistics': found}])
    return 0
  print(vocabulary_statistics.format_table(made.description['statistics']))
  spec = made.spec
  print(
    f'\n{spec.size} entries, {len(spec.languages)} languages: '
    f'{paths.of(args.output) / vocabulary.DESCRIPTION_FILE}'
  )
  for code, runs in zip(spec.languages, spec.language_words, strict=False):
    words = sum(stop - start for start, stop in runs)
    print(f'  {code:<10} {words:>12,} words')
  return 0


def _draw(args: argparse.Namespace, corpus: Corpus) -> int:
  """Writes a share of the sample."""
  from xlflax.data.vocabularies import reservoir

  if args.sample is None:
    raise errors.ConfigError(
      'A share of a sample needs a directory', expected='--sample=DIR'
    )
  origin = _origin(args, corpus)
  with progress.named('drawing a sample'):
    drawn = reservoir.draw(
      corpus, capacity=args.max_sentences, seed=args.seed, share=args.shard
    )
  reservoir.write(args.sample, args.shard, drawn, origin)
  for language, found in sorted(drawn.items()):
    print(f'{language:<10} {found.count:>12,} sentences')
  return 0


def _origin(args: argparse.Namespace, corpus: Corpus):
  """What the sample follows from."""
  from xlflax.data.vocabularies import reservoir

  return reservoir.Origin.of(
    corpus, capacity=args.max_sentences, seed=args.seed
  )


def _settings(args: argparse.Namespace) -> dict:
  names = (
    'size', 'merges', 'anchors', 'sentinels', 'model_type', 'alpha',
    'byte_fallback', 'character_coverage', 'normalization', 'max_sentences',
    'seed', 'num_threads',
  )  # fmt: skip
  values = {name: getattr(args, name) for name in names}
  return values | {
    'languages': tuple(filter(None, (args.languages or '').split(',')))
  }


def _show_plan(corpus: Corpus, settings: Settings) -> None:
  from xlflax.data.vocabularies.training import sentence_quotas

  print('lines, all well-formed:')
  for name, count in corpus.validate().items():
    print(f'  {name:<28} {count:>12,}')
  size = _size(settings)
  how = (
    'a vocabulary'
    if settings.anchors is Anchors.JOINT
    else 'the model of each language'
  )
  print(
    f'\nsentences for {how}, {size}'
    + (f', alpha {settings.alpha}' if settings.alpha is not None else '')
  )
  print(f'  {"language":<10} {"there are":>12} {"drawn":>12}')
  for plan in sentence_quotas(corpus, settings).values():
    for language, quota in plan.items():
      print(f'  {language:<10} {quota.available:>12,} {quota.drawn:>12,}')


def _size(settings: Settings) -> str:
  """How large a model becomes."""
  if settings.size is not None:
    return f'{settings.size} entries'
  return f'{settings.merges} merges'
