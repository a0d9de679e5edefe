"""Prepares the files of docs/measured/evaluation.md from public small data sets.

  python -m studies.evaluation.splits --data DATA --output FILES

What is drawn goes by a hash of the text, so it is the same everywhere and no
text stands on both sides:

- `uner.en.{train,dev}.iob2`: Universal NER's English dev set by sentence; one
  in ten is `dev`.
- `pawsx.<language>.{train,dev,test}.tsv`: PAWS-X by the first English
  sentence, the same pairs in each language; one half is `train`, three tenths
  are `test`.
- `tydiqa.en.{train,test}.json`: TyDiQA-GoldP's English training set by
  paragraph; one in five is `test`, as the dev set has no answers.
- `tatoeba.<xx>-en.{xx,en,gold}`: collections to mine in BUCC's format. A third
  of Tatoeba's pairs is there with both sides, a third with each one.
- `en-ja/`: a corpus directory of small_parallel_enja.
"""

import argparse
import hashlib
import json
import pathlib

from xlflax.data.corpus import corpus_writer as corpus_writer

PAWSX = ('en', 'es', 'fr', 'zh')
TATOEBA = {'fr': 'fra', 'zh': 'cmn'}
ENJA = {'train': 'train.first15000', 'validation': 'dev', 'test': 'test'}


def bucket(text: str, count: int) -> int:
  """A number below `count` that depends on the text alone."""
  digest = hashlib.sha256(text.encode()).digest()
  return int.from_bytes(digest[:8], 'big') % count


def lines(path: pathlib.Path) -> list[str]:
  # Not splitlines(): text may hold U+2028 and the like.
  return path.read_text(encoding='utf-8').rstrip('\n').split('\n')


def write(path: pathlib.Path, rows: list[str]) -> None:
  path.write_text(''.join(f'{row}\n' for row in rows), encoding='utf-8')


def uner(data: pathlib.Path, output: pathlib.Path) -> None:
  path = data / 'uner' / 'UNER_English-EWT' / 'en_ewt-ud-dev.iob2'
  blocks = path.read_text(encoding='utf-8').strip('\n').split('\n\n')
  for name, held in (('train', False), ('dev', True)):
    write(
      output / f'uner.en.{name}.iob2',
      [
        f'{block}\n'
        for block in blocks
        if (bucket(_words(block), 10) == 0) == held
      ],
    )


def _words(block: str) -> str:
  return ' '.join(
    row.split('\t')[1] for row in block.split('\n') if not row.startswith('#')
  )


def pawsx_split(sentence: str) -> str:
  number = bucket(sentence, 10)
  return 'train' if number < 5 else 'dev' if number < 7 else 'test'


def pawsx(data: pathlib.Path, output: pathlib.Path) -> None:
  """Line n is the same pair in each language."""
  texts = {code: lines(data / 'pawsx' / f'dev-{code}.tsv') for code in PAWSX}
  splits = [pawsx_split(row.split('\t')[0]) for row in texts['en']]
  labels = [row.rpartition('\t')[2] for row in texts['en']]
  for code, rows in texts.items():
    same = [
      row.rpartition('\t')[2] == label
      for row, label in zip(rows, labels, strict=True)
    ]
    if sum(same) < 0.98 * len(same):  # a few were labelled anew
      raise SystemExit(f'PAWS-X {code}: not the pairs of the English file.')
    for name in ('train', 'dev', 'test'):
      write(
        output / f'pawsx.{code}.{name}.tsv',
        [row for row, split in zip(rows, splits, strict=True) if split == name],
      )


def tydiqa(data: pathlib.Path, output: pathlib.Path) -> None:
  source = data / 'tydiqa_goldp' / 'tydiqa.goldp.en.train.first1000.json'
  content = json.loads(source.read_text(encoding='utf-8'))
  paragraphs = [
    (article.get('title', ''), paragraph)
    for article in content['data']
    for paragraph in article['paragraphs']
  ]
  for name, held in (('train', False), ('test', True)):
    chosen = [
      {'title': title, 'paragraphs': [paragraph]}
      for title, paragraph in paragraphs
      if (bucket(paragraph['context'], 5) == 0) == held
    ]
    (output / f'tydiqa.en.{name}.json').write_text(
      json.dumps(content | {'data': chosen}, ensure_ascii=False),
      encoding='utf-8',
    )


def tatoeba(data: pathlib.Path, output: pathlib.Path) -> None:
  """Pairs in three parts: both sides, the foreign side, the English side."""
  for language, code in TATOEBA.items():
    stem = data / 'tatoeba' / f'tatoeba.{code}-eng'
    pairs = list(
      zip(
        lines(stem.with_name(f'{stem.name}.{code}')),
        lines(stem.with_name(f'{stem.name}.eng')),
        strict=True,
      )
    )
    part = [bucket(english, 3) for _, english in pairs]
    sides = [
      (language, [n for n, p in enumerate(part) if p != 2]),
      ('en', [n for n, p in enumerate(part) if p != 1]),
    ]
    for side, (name, numbers) in enumerate(sides):
      shuffled = sorted(
        numbers, key=lambda n: bucket(f'{name} {pairs[n]}', 2**63)
      )
      write(
        output / f'tatoeba.{language}-en.{name}',
        [f'{name}-{n:06}\t{pairs[n][side]}' for n in shuffled],
      )
    write(
      output / f'tatoeba.{language}-en.gold',
      [f'{language}-{n:06}\ten-{n:06}' for n, p in enumerate(part) if p == 0],
    )


def en_ja(data: pathlib.Path, output: pathlib.Path) -> None:
  """Pairs for training, validation and test, and text for the vocabulary."""
  names = ('en', 'ja')
  folder = output / 'en-ja'
  for split, stem in ENJA.items():
    pairs = [
      tuple(row.split('\t'))
      for row in lines(data / 'small_parallel_enja' / f'{stem}.tsv')
    ]
    corpus_writer.write_parallel(folder, names, pairs, split=split)
    if split == 'train':
      for side, name in enumerate(names):
        corpus_writer.write_monolingual(
          folder, name, [[pair[side] for pair in pairs]]
        )


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--data', required=True, type=pathlib.Path)
  parser.add_argument('--output', required=True, type=pathlib.Path)
  args = parser.parse_args()
  args.output.mkdir(parents=True, exist_ok=True)
  for prepare in (uner, pawsx, tydiqa, tatoeba, en_ja):
    prepare(args.data, args.output)


if __name__ == '__main__':
  main()
