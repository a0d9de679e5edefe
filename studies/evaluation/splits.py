"""Prepares the data for docs/measured/evaluation.md from public data sets.

  python -m studies.evaluation.splits --data DATA --output FILES

Splits are determined by a hash of the text. They are therefore the same on
every machine, and no text occurs in two splits:

- `uner.en.{train,dev}.iob2`: The English dev set of Universal NER, split by
  sentence. One tenth is `dev`. - `pawsx.<language>.{train,dev,test}.tsv`:
  PAWS-X, split by the first English sentence, with the same pairs in each
  language. One half is `train`, two tenths are `dev` and three tenths are
  `test`. - `tydiqa.en.{train,test}.json`: The English training set of
  TyDiQA-GoldP, split by paragraph. One fifth is `test`, because the dev set has
  no answers. - `tatoeba.<xx>-en.{xx,en,gold}`: Tatoeba as collections for
  bitext mining in the BUCC format. For a third of the pairs, both sentences are
  included. For the remaining pairs, only one of the two sentences is included.
  - `en-ja/`: Corpus directory with the text of small_parallel_enja.
"""

import argparse
import hashlib
import json
import pathlib
import sys
from collections.abc import Sequence

from studies import command_line
from xlflax.data.corpus import corpus_writer

PAWSX_LANGUAGES = ('en', 'es', 'fr', 'zh')
# Map from language code to the code in the file names of Tatoeba.
TATOEBA_CODES = {'fr': 'fra', 'zh': 'cmn'}
# Map from split to file name without suffix.
ENJA_FILES = {'train': 'train.first15000', 'validation': 'dev', 'test': 'test'}


def hash_bucket(text: str, count: int) -> int:
  """Returns a number in [0, count) that depends only on the text."""
  digest = hashlib.sha256(text.encode()).digest()
  return int.from_bytes(digest[:8], 'big') % count


def read_lines(path: pathlib.Path) -> list[str]:
  """Returns the lines of a text file."""
  # `splitlines()` would also split at U+2028 and similar characters.
  return path.read_text(encoding='utf-8').rstrip('\n').split('\n')


def write_lines(path: pathlib.Path, lines: list[str]) -> None:
  """Writes a text file."""
  path.write_text(''.join(f'{line}\n' for line in lines), encoding='utf-8')


def prepare_uner(data: pathlib.Path, output: pathlib.Path) -> None:
  """Splits the English dev set of Universal NER into train and dev sets."""
  path = data / 'uner' / 'UNER_English-EWT' / 'en_ewt-ud-dev.iob2'
  blocks = path.read_text(encoding='utf-8').strip('\n').split('\n\n')
  for split, is_held_out in (('train', False), ('dev', True)):
    write_lines(
      output / f'uner.en.{split}.iob2',
      [
        f'{block}\n'
        for block in blocks
        if (hash_bucket(_sentence_text(block), 10) == 0) == is_held_out
      ],
    )


def _sentence_text(block: str) -> str:
  """Returns the words in an IOB2 sentence, separated by spaces."""
  return ' '.join(
    line.split('\t')[1]
    for line in block.split('\n')
    if not line.startswith('#')
  )


def pawsx_split(sentence: str) -> str:
  """Returns the split of a PAWS-X pair, given its first English sentence."""
  bucket = hash_bucket(sentence, 10)
  if bucket < 5:
    return 'train'
  return 'dev' if bucket < 7 else 'test'


def prepare_pawsx(data: pathlib.Path, output: pathlib.Path) -> None:
  """Splits PAWS-X pairs by a hash of each pair's first English sentence.

  All languages' files contain the same pairs in the same order.

  Raises:
    SystemExit: If a language's labels differ from the English labels in more
      than 2 % of the lines.
  """
  lines_by_language = {
    code: read_lines(data / 'pawsx' / f'dev-{code}.tsv')
    for code in PAWSX_LANGUAGES
  }
  english_lines = lines_by_language['en']
  splits = [pawsx_split(line.split('\t')[0]) for line in english_lines]
  labels = [line.rpartition('\t')[2] for line in english_lines]
  for code, lines in lines_by_language.items():
    num_equal_labels = sum(
      line.rpartition('\t')[2] == label
      for line, label in zip(lines, labels, strict=True)
    )
    # A few pairs have a different label in some languages.
    if num_equal_labels < 0.98 * len(lines):
      raise SystemExit(
        f'In PAWS-X, at least 98 % of the lines in {code} must have the same '
        'label as the corresponding English lines, but only '
        f'{num_equal_labels} of {len(lines)} lines do.'
      )
    for name in ('train', 'dev', 'test'):
      write_lines(
        output / f'pawsx.{code}.{name}.tsv',
        [
          line
          for line, split in zip(lines, splits, strict=True)
          if split == name
        ],
      )


def prepare_tydiqa(data: pathlib.Path, output: pathlib.Path) -> None:
  """Splits the English training set of TyDiQA-GoldP by paragraph."""
  source = data / 'tydiqa_goldp' / 'tydiqa.goldp.en.train.first1000.json'
  content = json.loads(source.read_text(encoding='utf-8'))
  paragraphs = [
    (article.get('title', ''), paragraph)
    for article in content['data']
    for paragraph in article['paragraphs']
  ]
  for split, is_held_out in (('train', False), ('test', True)):
    articles = [
      {'title': title, 'paragraphs': [paragraph]}
      for title, paragraph in paragraphs
      if (hash_bucket(paragraph['context'], 5) == 0) == is_held_out
    ]
    (output / f'tydiqa.en.{split}.json').write_text(
      json.dumps(content | {'data': articles}, ensure_ascii=False),
      encoding='utf-8',
    )


def prepare_tatoeba(data: pathlib.Path, output: pathlib.Path) -> None:
  """Writes the sentence collections for bitext mining.

  The pairs are divided into three groups, of which both sentences, only the
  foreign sentence, or only the English sentence are included.
  """
  for language, code in TATOEBA_CODES.items():
    stem = data / 'tatoeba' / f'tatoeba.{code}-eng'
    pairs = list(
      zip(
        read_lines(stem.with_name(f'{stem.name}.{code}')),
        read_lines(stem.with_name(f'{stem.name}.eng')),
        strict=True,
      )
    )
    groups = [hash_bucket(english, 3) for _, english in pairs]
    collections = [
      (language, [i for i, group in enumerate(groups) if group != 2]),
      ('en', [i for i, group in enumerate(groups) if group != 1]),
    ]
    for column, (name, indices) in enumerate(collections):
      indices.sort(key=lambda i: hash_bucket(f'{name} {pairs[i]}', 2**63))
      write_lines(
        output / f'tatoeba.{language}-en.{name}',
        [f'{name}-{i:06}\t{pairs[i][column]}' for i in indices],
      )
    write_lines(
      output / f'tatoeba.{language}-en.gold',
      [
        f'{language}-{i:06}\ten-{i:06}'
        for i, group in enumerate(groups)
        if group == 0
      ],
    )


def prepare_enja(data: pathlib.Path, output: pathlib.Path) -> None:
  """Writes an English-Japanese corpus with pairs and monolingual text."""
  languages = ('en', 'ja')
  folder = output / 'en-ja'
  for split, stem in ENJA_FILES.items():
    pairs = [
      tuple(line.split('\t'))
      for line in read_lines(data / 'small_parallel_enja' / f'{stem}.tsv')
    ]
    corpus_writer.write_parallel(folder, languages, pairs, split=split)
    if split == 'train':
      for column, language in enumerate(languages):
        corpus_writer.write_monolingual(
          folder, language, [[pair[column] for pair in pairs]]
        )


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.evaluation.splits', __doc__)
  parser.add_argument(
    '--data',
    required=True,
    type=command_line.input_directory,
    help='Folder that contains the data sets.',
  )
  parser.add_argument(
    '--output',
    required=True,
    type=pathlib.Path,
    help='Folder to which everything is written.',
  )
  return command_line.run_command(parser, _write_splits, arguments)


def _write_splits(args: argparse.Namespace) -> None:
  """Writes the splits of all data sets."""
  args.output.mkdir(parents=True, exist_ok=True)
  for prepare in (
    prepare_uner,
    prepare_pawsx,
    prepare_tydiqa,
    prepare_tatoeba,
    prepare_enja,
  ):
    prepare(args.data, args.output)


if __name__ == '__main__':
  sys.exit(main())
