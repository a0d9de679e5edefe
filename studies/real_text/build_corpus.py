"""Makes a corpus directory of up to ten languages from public small data sets.

  python -m studies.real_text.build_corpus --data DATA --output CORPUS \\
      [--languages en fr] [--sources bible] [--foreign_sources guide ntrex] \\
      [--pair_sources bible ntrex enja]

DATA holds `bible/<lang>.tsv` (reference, verse),
`opensource_guide/<lang>/*.md`, `ntrex/en-<lang>.tsv`,
`small_parallel_enja/train.*` (English, Japanese) and
`tatoeba/tatoeba.<xxx>-eng.*`. Tatoeba is the test set: it is copied to `test/`,
and every training line that equals one of its sentences, punctuation and case
aside, is left out. The dictionaries of `bilingual_dictionaries` that fit the
languages are copied; where there is none, Swadesh lists are joined.
"""

import argparse
import collections
import pathlib
import re
import unicodedata

from xlflax.data.corpus import corpus_writer as corpus_writer

LANGUAGES = ('en', 'fr', 'de', 'es', 'ru', 'zh', 'ar', 'hi', 'ja', 'sw')
TATOEBA = {
  'fra': 'fr',
  'deu': 'de',
  'spa': 'es',
  'rus': 'ru',
  'cmn': 'zh',
  'ara': 'ar',
  'hin': 'hi',
  'jpn': 'ja',
  'swh': 'sw',
}
GUIDE = {'zh': 'zh-hans'}
SOURCES = ('bible', 'guide', 'ntrex', 'enja')
PAIR_SOURCES = ('bible', 'ntrex', 'enja')
DICTIONARIES = {
  'fr': 'freedict/en-fr',
  'es': 'freedict/es-en',
  'sw': 'freedict/en-sw',
  'ru': 'openrussian/ru-en',
  'de': 'apertium/en-de',
}
SWADESH = {'en': 'eng', 'zh': 'cmn', 'ar': 'arb', 'hi': 'hin', 'ja': 'jpn'}


def normalized(text: str) -> str:
  """Letters and digits only, in lower case: what makes two lines the same."""
  text = unicodedata.normalize('NFKC', text).lower()
  return ''.join(c for c in text if unicodedata.category(c)[0] in 'LN')


def read_tsv(path: pathlib.Path) -> list[list[str]]:
  if not path.exists():
    return []
  return [
    line.split('\t')
    for line in path.read_text(encoding='utf-8').splitlines()
    if line.count('\t') == 1
  ]


def read_guide(folder: pathlib.Path) -> list[list[str]]:
  """Paragraphs of each article, without header, markup and links."""
  documents = []
  for path in sorted(folder.glob('*.md')):
    text = path.read_text(encoding='utf-8')
    text = re.sub(r'\A---\n.*?\n---\n', '', text, flags=re.DOTALL)
    text = re.sub(r'<[^>]+>', ' ', text)
    text = re.sub(r'!?\[([^\]]*)\]\([^)]*\)', r'\1', text)
    text = re.sub(r'[*_`#>|{}]+', ' ', text)
    documents.append(
      [
        ' '.join(p.split())
        for p in text.split('\n')
        if len(p.split()) > 2 or len(p) > 15
      ]
    )
  return documents


def read_tatoeba(folder: pathlib.Path) -> dict[str, list[tuple[str, str]]]:
  """Language -> (English, translation) pairs."""
  pairs = {}
  for code, language in TATOEBA.items():
    sides = [
      (folder / f'tatoeba.{code}-eng.{side}')
      .read_text(encoding='utf-8')
      .splitlines()
      for side in ('eng', code)
    ]
    pairs[language] = list(zip(*sides, strict=True))
  return pairs


def read_parallel(
  data: pathlib.Path, sources
) -> dict[str, list[tuple[str, str]]]:
  """Language -> (English, translation) pairs for training."""
  pairs: dict[str, list[tuple[str, str]]] = {
    language: [] for language in LANGUAGES[1:]
  }
  verses = {
    language: dict(read_tsv(data / 'bible' / f'{language}.tsv'))
    for language in LANGUAGES
  }
  for language in LANGUAGES[1:]:
    for reference, text in verses[language].items():
      if 'bible' in sources and reference in verses['en']:
        pairs[language].append((verses['en'][reference], text))
    if 'ntrex' in sources:
      pairs[language] += map(
        tuple, read_tsv(data / 'ntrex' / f'en-{language}.tsv')
      )
  if 'enja' not in sources:
    return pairs
  for path in sorted((data / 'small_parallel_enja').glob('train*')):
    pairs['ja'] += [
      (english, ''.join(japanese.split()))
      for english, japanese in read_tsv(path)
    ]
  return pairs


def read_monolingual(
  data: pathlib.Path, pairs, language: str, sources
) -> list[list[str]]:
  """Documents: bible chapters, articles, sides of other pairs."""
  documents = []
  if 'bible' in sources:
    chapters = collections.defaultdict(list)
    for reference, text in read_tsv(data / 'bible' / f'{language}.tsv'):
      chapters[reference.rpartition('.')[0]].append(text)
    documents += chapters.values()
  if 'guide' in sources:
    documents += read_guide(
      data / 'opensource_guide' / GUIDE.get(language, language)
    )
  english = language == 'en'
  if 'ntrex' in sources:
    documents.append(
      [
        row[not english]
        for row in read_tsv(
          data / 'ntrex' / f'en-{"fr" if english else language}.tsv'
        )
      ]
    )
  if 'enja' in sources and language in ('en', 'ja'):
    documents.append([pair[not english] for pair in pairs['ja']])
  return documents


def read_dictionary(
  data: pathlib.Path, language: str
) -> tuple[tuple[str, str], list[tuple[str, ...]]]:
  """Languages and entries of a dictionary of English and this language."""
  folder = data / 'bilingual_dictionaries'
  if language in DICTIONARIES:
    name = DICTIONARIES[language]
    return (
      tuple(name.rpartition('/')[2].split('-')),
      [tuple(entry) for entry in read_tsv(folder / f'{name}.train.tsv')],
    )
  concepts = [
    (folder / 'panlex_swadesh207' / f'{SWADESH[code]}.txt')
    .read_text(encoding='utf-8')
    .splitlines()
    for code in ('en', language)
  ]
  return ('en', language), [
    (english, foreign)
    for first, second in zip(*concepts, strict=True)
    for english in first.split('\t')
    for foreign in second.split('\t')
    if english and foreign
  ]


def build(
  data: pathlib.Path,
  output: pathlib.Path,
  languages,
  sources,
  foreign_sources,
  pair_sources,
) -> None:
  """Writes the corpus and prints what was left out."""
  test = read_tatoeba(data / 'tatoeba')
  held = {
    normalized(text)
    for pairs in test.values()
    for pair in pairs
    for text in pair
  }
  dropped: collections.Counter[str] = collections.Counter()

  def keep(name, *texts):
    fine = not any(normalized(text) in held for text in texts)
    dropped[name] += not fine
    return fine

  parallel = {
    language: [pair for pair in pairs if keep(f'en-{language}', *pair)]
    for language, pairs in read_parallel(data, pair_sources).items()
  }
  monolingual = {
    language: read_monolingual(
      data, parallel, language, sources if language == 'en' else foreign_sources
    )
    for language in languages
  }
  validation = {language: pairs[-100:] for language, pairs in parallel.items()}
  held |= {
    normalized(text)
    for pairs in validation.values()
    for pair in pairs
    for text in pair
  }
  for language in languages[1:]:
    names = ('en', language)
    if parallel[language]:
      corpus_writer.write_parallel(
        output, names, [p for p in parallel[language] if keep('held', *p)]
      )
      corpus_writer.write_parallel(
        output, names, validation[language], split='validation'
      )
    corpus_writer.write_parallel(output, names, test[language], split='test')
    corpus_writer.write_dictionary(output, *read_dictionary(data, language))
  for language, documents in monolingual.items():
    lines = [
      pair[language != 'en']
      for pair in validation['fr' if language == 'en' else language]
    ]
    corpus_writer.write_monolingual(
      output, language, [lines], split='validation'
    )
    corpus_writer.write_monolingual(
      output,
      language,
      [
        [line for line in document if keep(language, line)]
        for document in documents
      ],
    )
  print('Lines left out, as they stand in a held-out set:', dict(+dropped))


def main() -> None:
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('--data', required=True, type=pathlib.Path)
  parser.add_argument('--output', required=True, type=pathlib.Path)
  parser.add_argument(
    '--languages',
    nargs='+',
    default=LANGUAGES,
    choices=LANGUAGES,
    help='English first',
  )
  parser.add_argument(
    '--sources',
    nargs='+',
    default=SOURCES,
    choices=SOURCES,
    help='of the monolingual text',
  )
  parser.add_argument(
    '--foreign_sources',
    nargs='+',
    choices=SOURCES,
    help='of the other languages than English, if different',
  )
  parser.add_argument(
    '--pair_sources',
    nargs='+',
    default=PAIR_SOURCES,
    choices=PAIR_SOURCES,
    help='of the sentence pairs',
  )
  args = parser.parse_args()
  if args.languages[0] != 'en' or len(args.languages) < 2:
    parser.error('--languages: en and at least one other')
  build(
    args.data,
    args.output,
    args.languages,
    args.sources,
    args.foreign_sources or args.sources,
    args.pair_sources,
  )


if __name__ == '__main__':
  main()
