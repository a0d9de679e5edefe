"""Builds a corpus in up to ten languages from small public data sets.

  python -m studies.real_text.build_corpus --data DATA --output CORPUS \\
      [--languages en fr] [--sources bible] [--foreign_sources guide ntrex] \\
      [--pair_sources bible ntrex enja]

DATA contains `bible/<lang>.tsv` (reference, verse),
`opensource_guide/<lang>/*.md`, `ntrex/en-<lang>.tsv`,
`small_parallel_enja/train.*` (English, Japanese) and
`tatoeba/tatoeba.<xxx>-eng.*`. Tatoeba is the test set and is copied to `test/`.
Training lines that equal a Tatoeba sentence, ignoring case and punctuation, are
dropped. Bilingual dictionaries are copied from `bilingual_dictionaries`. If a
language has no dictionary, one is built from Swadesh lists.
"""

import argparse
import collections
import pathlib
import re
import sys
import unicodedata
from collections.abc import Collection, Mapping, Sequence

from studies import command_line
from xlflax.data.corpus import corpus_writer
from xlflax.utils import errors

LANGUAGES = ('en', 'fr', 'de', 'es', 'ru', 'zh', 'ar', 'hi', 'ja', 'sw')
# Map from the code in the file names of Tatoeba to the language code.
TATOEBA_LANGUAGES = {
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
# Folders of the Open Source Guides whose names are not the language code.
GUIDE_FOLDERS = {'zh': 'zh-hans'}
SOURCES = ('bible', 'guide', 'ntrex', 'enja')
PAIR_SOURCES = ('bible', 'ntrex', 'enja')
# Map from language to the path of its dictionary without suffix.
DICTIONARIES = {
  'fr': 'freedict/en-fr',
  'es': 'freedict/es-en',
  'sw': 'freedict/en-sw',
  'ru': 'openrussian/ru-en',
  'de': 'apertium/en-de',
}
SWADESH_FILES = {
  'en': 'eng',
  'zh': 'cmn',
  'ar': 'arb',
  'hi': 'hin',
  'ja': 'jpn',
}


def normalize_text(text: str) -> str:
  """Returns only the letters and digits of a text, in lower case.

  Two lines are considered equal if the results for both are equal.
  """
  text = unicodedata.normalize('NFKC', text).lower()
  return ''.join(c for c in text if unicodedata.category(c)[0] in 'LN')


def read_tsv(path: pathlib.Path) -> list[list[str]]:
  """Returns the columns of each line that has exactly two columns.

  If the file does not exist, the list is empty.
  """
  if not path.exists():
    return []
  return [
    line.split('\t')
    for line in path.read_text(encoding='utf-8').splitlines()
    if line.count('\t') == 1
  ]


def read_guide(folder: pathlib.Path) -> list[list[str]]:
  """Returns the paragraphs of each article in the Open Source Guides.

  Front matter, markup, link targets and very short paragraphs are removed.
  """
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
  """Returns pairs of an English sentence and its translation, by language."""
  pairs = {}
  for code, language in TATOEBA_LANGUAGES.items():
    sides = [
      (folder / f'tatoeba.{code}-eng.{side}')
      .read_text(encoding='utf-8')
      .splitlines()
      for side in ('eng', code)
    ]
    pairs[language] = list(zip(*sides, strict=True))
  return pairs


def read_parallel(
  data: pathlib.Path, sources: Collection[str]
) -> dict[str, list[tuple[str, str]]]:
  """Returns training pairs of English text and a translation, by language.

  Args:
    data: Folder that contains the data sets.
    sources: Names of the sources of sentence pairs, keys of `PAIR_SOURCES`.
  """
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
  data: pathlib.Path,
  pairs: Mapping[str, list[tuple[str, str]]],
  language: str,
  sources: Collection[str],
) -> list[list[str]]:
  """Returns the monolingual documents in a language.

  Documents are Bible chapters, articles, and the sentences in this language
  from the sentence pairs.

  Args:
    data: Folder that contains the data sets.
    pairs: Map from language to its training pairs of an English text and a
      translation.
    language: Language of the documents.
    sources: Names of the text sources, keys of `SOURCES`.
  """
  documents = []
  if 'bible' in sources:
    chapters = collections.defaultdict(list)
    for reference, text in read_tsv(data / 'bible' / f'{language}.tsv'):
      chapters[reference.rpartition('.')[0]].append(text)
    documents += chapters.values()
  if 'guide' in sources:
    documents += read_guide(
      data / 'opensource_guide' / GUIDE_FOLDERS.get(language, language)
    )
  is_english = language == 'en'
  if 'ntrex' in sources:
    documents.append(
      [
        row[not is_english]
        for row in read_tsv(
          data / 'ntrex' / f'en-{"fr" if is_english else language}.tsv'
        )
      ]
    )
  if 'enja' in sources and language in ('en', 'ja'):
    documents.append([pair[not is_english] for pair in pairs['ja']])
  return documents


def read_dictionary(
  data: pathlib.Path, language: str
) -> tuple[tuple[str, str], list[tuple[str, ...]]]:
  """Reads the dictionary between English and a second language.

  Args:
    data: Folder that contains the data sets.
    language: Code of the language that the dictionary combines with English.

  Returns:
    The two languages, in the order in which they occur in the entries, and the
    entries.
  """
  folder = data / 'bilingual_dictionaries'
  if language in DICTIONARIES:
    name = DICTIONARIES[language]
    return (
      tuple(name.rpartition('/')[2].split('-')),
      [tuple(entry) for entry in read_tsv(folder / f'{name}.train.tsv')],
    )
  concepts = [
    (folder / 'panlex_swadesh207' / f'{SWADESH_FILES[code]}.txt')
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


def build_corpus(
  data: pathlib.Path,
  output: pathlib.Path,
  languages: Sequence[str],
  sources: Collection[str],
  foreign_sources: Collection[str],
  pair_sources: Collection[str],
) -> None:
  """Writes the corpus and prints the number of dropped lines.

  Args:
    data: Folder that contains the data sets.
    output: Corpus directory to write.
    languages: Languages of the corpus, of which English is the first.
    sources: Names of the sources of English text.
    foreign_sources: Names of the sources of text in languages other than
      English.
    pair_sources: Names of the sources of sentence pairs.
  """
  test = read_tatoeba(data / 'tatoeba')
  held_out = {
    normalize_text(text)
    for pairs in test.values()
    for pair in pairs
    for text in pair
  }
  num_dropped: collections.Counter[str] = collections.Counter()

  def accept_training_text(name: str, *texts: str) -> bool:
    """Returns whether none of the texts is held out for testing or validation.

    If a text is held out, `num_dropped[name]` is incremented.
    """
    is_held_out = any(normalize_text(text) in held_out for text in texts)
    num_dropped[name] += is_held_out
    return not is_held_out

  parallel = {
    language: [
      pair for pair in pairs if accept_training_text(f'en-{language}', *pair)
    ]
    for language, pairs in read_parallel(data, pair_sources).items()
  }
  monolingual = {
    language: read_monolingual(
      data, parallel, language, sources if language == 'en' else foreign_sources
    )
    for language in languages
  }
  validation = {language: pairs[-100:] for language, pairs in parallel.items()}
  held_out |= {
    normalize_text(text)
    for pairs in validation.values()
    for pair in pairs
    for text in pair
  }
  for language in languages[1:]:
    pair_languages = ('en', language)
    if parallel[language]:
      corpus_writer.write_parallel(
        output,
        pair_languages,
        [
          pair
          for pair in parallel[language]
          if accept_training_text('validation', *pair)
        ],
      )
      corpus_writer.write_parallel(
        output, pair_languages, validation[language], split='validation'
      )
    corpus_writer.write_parallel(
      output, pair_languages, test[language], split='test'
    )
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
        [line for line in document if accept_training_text(language, line)]
        for document in documents
      ],
    )
  print('Dropped lines that occur in a held-out set:', dict(+num_dropped))


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.real_text.build_corpus', __doc__)
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
    help='Corpus directory to write.',
  )
  parser.add_argument(
    '--languages',
    nargs='+',
    default=LANGUAGES,
    choices=LANGUAGES,
    help='Languages of the corpus, English first.',
  )
  parser.add_argument(
    '--sources',
    nargs='+',
    default=SOURCES,
    choices=SOURCES,
    help='Sources of the monolingual text.',
  )
  parser.add_argument(
    '--foreign_sources',
    nargs='+',
    choices=SOURCES,
    help='Sources of the monolingual text in languages other than English. '
    'Defaults to --sources.',
  )
  parser.add_argument(
    '--pair_sources',
    nargs='+',
    default=PAIR_SOURCES,
    choices=PAIR_SOURCES,
    help='Sources of the sentence pairs.',
  )
  return command_line.run_command(parser, _build_corpus, arguments)


def _build_corpus(args: argparse.Namespace) -> None:
  """Builds the corpus from the command-line arguments."""
  if args.languages[0] != 'en' or len(args.languages) < 2:
    raise errors.ConfigError(
      'The languages must include en and at least one other language',
      got=' '.join(args.languages),
      where='--languages',
    )
  build_corpus(
    args.data,
    args.output,
    args.languages,
    args.sources,
    args.foreign_sources or args.sources,
    args.pair_sources,
  )


if __name__ == '__main__':
  sys.exit(main())
