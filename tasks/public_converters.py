"""Functions that convert downloaded public data sets to supported formats.

Each converter takes the folder of the download and the output folder. It
returns the names of the files that it writes.
"""

import logging
import pathlib
import shutil
from collections.abc import Callable, Iterable

from xlflax.data.corpus import line_reader
from xlflax.data.supervised.readers import file_reading
from xlflax.storage import paths
from xlflax.utils import errors

_MASSIVE_SPLITS = {'train': 'train', 'dev': 'validation', 'test': 'test'}
# Locales of MASSIVE that are tagged by character.
_CHARACTER_LOCALES = ('ja-JP', 'zh-CN', 'zh-TW')
FileNames = list[str]


def write_lines(output: pathlib.Path, name: str, lines: Iterable[str]) -> str:
  """Writes a file in the output folder and returns its name."""
  path = output / name
  path.parent.mkdir(parents=True, exist_ok=True)
  paths.write_atomically(
    path, lambda file: file.writelines(f'{line}\n'.encode() for line in lines)
  )
  return name


def _create_copy_converter(
  pattern: str, output_name: Callable[[pathlib.Path], str]
) -> Callable[[pathlib.Path, pathlib.Path], FileNames]:
  """Returns a converter that copies and renames files.

  Args:
    pattern: Glob pattern of the files to copy.
    output_name: Function that maps a file's path to its name in the output
      folder.
  """

  def convert(source: pathlib.Path, output: pathlib.Path) -> FileNames:
    file_names = []
    for path in sorted(source.rglob(pattern)):
      name = output_name(path)
      if name in file_names:
        raise errors.CorpusError(
          f'Two downloaded files would both be written as {name}. The second '
          f'file is {path}',
          where=str(source),
          fix='Pass a folder that contains only one of the two files as '
          '--input.',
        )
      target = output / name
      target.parent.mkdir(parents=True, exist_ok=True)
      shutil.copyfile(path, target)
      file_names.append(name)
    return file_names

  return convert


def convert_sib200(source: pathlib.Path, output: pathlib.Path) -> FileNames:
  """Writes SIB-200 texts and topics as `<language>/<split>.tsv`."""
  file_names = []
  for path in sorted(source.rglob('*_*/*.tsv')):
    rows = [row for _, row in file_reading.read_csv(path)]
    if rows and {'text', 'category'} <= set(rows[0]):
      name = f'{path.parent.name}/{path.stem}.tsv'
      lines = [
        f'{" ".join(row["text"].split())}\t{row["category"]}' for row in rows
      ]
      file_names.append(write_lines(output, name, lines))
  return file_names


def convert_taxi1500(source: pathlib.Path, output: pathlib.Path) -> FileNames:
  """Writes Taxi1500's verses and topics as `<language>/<split>.tsv`.

  The files are named `<language>_<split>.tsv`, such as `eng_train.tsv`, and end
  with the columns id, topic and verse, with or without a header.
  """
  file_names = []
  for path in sorted(source.rglob('*_*.tsv')):
    language, _, split = path.stem.rpartition('_')
    if split not in ('train', 'dev', 'test'):
      continue
    rows = [
      line.split('\t')[-3:] for _, line in file_reading.read_lines(path) if line
    ]
    lines = [
      f'{" ".join(row[2].split())}\t{row[1]}'
      for row in rows
      if len(row) == 3 and row[0].strip().isdigit()
    ]
    if lines:
      file_names.append(write_lines(output, f'{language}/{split}.tsv', lines))
  return file_names


def convert_flores_plus(
  source: pathlib.Path, output: pathlib.Path
) -> FileNames:
  """Writes FLORES+ `devtest` as sentence pairs of English and another language.

  The files are `flores.<language>-eng_Latn.<language>` and
  `flores.<language>-eng_Latn.eng_Latn`, as in the Tatoeba test sets. The input
  is `devtest/<language>.parquet` or `.jsonl` (FLORES+), or
  `devtest/<language>.devtest` (FLORES-200).
  """
  sentences: dict[str, list[str]] = {}
  for path in sorted(source.rglob('devtest/*_*.*')):
    if path.suffix == '.devtest':
      rows: Iterable = (line for _, line in line_reader.read_lines(path))
      sentences[path.stem] = [row.decode() for row in rows]
    elif path.suffix in ('.parquet', '.jsonl'):
      records = [record for _, record in line_reader.read_records(path)]
      records.sort(key=lambda record: record['id'])
      sentences[path.stem] = [
        ' '.join(record['text'].split()) for record in records
      ]
  english = sentences.pop('eng_Latn', None)
  if english is None:
    raise errors.CorpusError(
      'The folder must contain the English sentences of FLORES+ in the file '
      'devtest/eng_Latn.parquet, devtest/eng_Latn.jsonl or '
      'devtest/eng_Latn.devtest',
      where=str(source),
    )
  file_names = []
  for language, lines in sentences.items():
    if len(lines) != len(english):
      raise errors.CorpusError(
        'The files of FLORES+ must contain the same number of sentences in '
        f'every language, but the number of sentences is {len(lines)} in '
        f'{language} and {len(english)} in English',
        where=str(source),
        fix='Download the files again.',
      )
    prefix = f'flores.{language}-eng_Latn'
    file_names += [
      write_lines(output, f'{prefix}.{language}', lines),
      write_lines(output, f'{prefix}.eng_Latn', english),
    ]
  return file_names


def convert_massive(source: pathlib.Path, output: pathlib.Path) -> FileNames:
  """Writes the intents and slots of MASSIVE's utterances.

  The files are `intents/<locale>/<split>.tsv` and
  `slots/<locale>/<split>.conll`.
  """
  file_names = []
  for path in sorted(source.rglob('??-??.jsonl')):
    locale = path.stem
    rows = [value for _, value in file_reading.read_json_lines(path)]
    for partition, split in _MASSIVE_SPLITS.items():
      split_rows = [row for row in rows if row['partition'] == partition]
      if not split_rows:
        continue
      intents = [f'{row["utt"]}\t{row["intent"]}' for row in split_rows]
      slots = [
        '\n'.join(slot_lines(row['annot_utt'], locale)) + '\n'
        for row in split_rows
      ]
      file_names += [
        write_lines(output, f'intents/{locale}/{split}.tsv', intents),
        write_lines(output, f'slots/{locale}/{split}.conll', slots),
      ]
  return file_names


def slot_lines(annotated: str, locale: str) -> list[str]:
  """Converts an annotated MASSIVE utterance to `word<TAB>tag` lines.

  Words and slots are the same as in the original MASSIVE code (FitzGerald et
  al., 2023): Japanese and Chinese text is split into characters, except for
  Latin words, and adjacent slots of the same type are merged. As in the
  original code and in published scores, a Latin word at the end of a slot does
  not close the slot in these languages.

  For example, `wake me at [time : nine am]` becomes `wake\tO`, `me\tO`,
  `at\tO`, `nine\tB-time`, `am\tI-time`.

  Args:
    annotated: Utterance with slots in brackets, such as `wake me at [time :
      nine am]`.
    locale: The utterance's locale, such as `ja-JP`.
  """
  lines: list[str] = []
  slot = previous_slot = ''
  by_character = locale in _CHARACTER_LOCALES
  chunks = iter(annotated.split())
  for chunk in chunks:
    if chunk.startswith('['):
      slot = chunk.lstrip('[')
      next(chunks, None)  # Skips the colon.
      continue

    tokens: Iterable[str]
    if by_character and not chunk.isascii():
      tokens = chunk
    elif chunk.endswith(']') and not by_character:
      tokens = [chunk.rstrip(']'), ']']
    else:
      tokens = [chunk.rstrip(']')]

    for token in tokens:
      if token == ']':
        slot = ''
      elif token:
        prefix = 'I-' if slot == previous_slot else 'B-'
        tag = prefix + slot if slot else 'O'
        lines.append(f'{token}\t{tag}')
        previous_slot = slot
  return lines


# Names of the field with the article in the data sets of GEM.
_ARTICLE_FIELDS = ('text', 'document', 'source')


def convert_seahorse(source: pathlib.Path, output: pathlib.Path) -> FileNames:
  """Writes SEAHORSE's articles, summaries and ratings.

  The files are `question<1-6>/<language>/<split>.tsv`. The articles are not
  included in SEAHORSE. They come from GEM and are read from JSON lines files
  that contain each article with its `gem_id`. Summaries without an article are
  dropped.
  """
  articles = {
    value['gem_id']: next(value[key] for key in _ARTICLE_FIELDS if key in value)
    for path in sorted(source.rglob('*.jsonl*'))
    for _, value in file_reading.read_json_lines(path)
  }
  lines_of_files: dict[str, list[str]] = {}
  num_missing = 0
  for split in ('train', 'validation', 'test'):
    for path in sorted(source.glob(f'{split}.tsv')):
      for _, row in file_reading.read_csv(path):
        texts = [
          ' '.join(text.split())
          for text in (articles.get(row['gem_id'], ''), row['summary'])
        ]
        num_missing += not texts[0]
        language = row['worker_lang'].split('-')[0]
        for number in range(1, 7):
          rating = row[f'question{number}']
          if all((*texts, rating)):
            name = f'question{number}/{language}/{split}.tsv'
            line = '\t'.join((*texts, rating))
            lines_of_files.setdefault(name, []).append(line)
  if num_missing:
    logging.warning(
      'Dropped %d SEAHORSE summaries that have no article.', num_missing
    )
  return [
    write_lines(output, name, lines) for name, lines in lines_of_files.items()
  ]


def convert_mlqe_pe(source: pathlib.Path, output: pathlib.Path) -> FileNames:
  """Writes the quality-estimation data of the MLQE-PE data set.

  The files are `<from_en|to_en>/<language>/<split>.tsv`, with three columns:
  the sentence in the other language, the English sentence, and the mean of the
  z-scores (`z_mean`). As in the shared tasks' baselines, quotation marks have
  no special meaning.
  """
  file_names = []
  for path in sorted(source.rglob('*.df.short.tsv')):
    split, pair = path.name.split('.')[:2]
    first, second = pair[:2], pair[2:]
    if first == 'en':
      sides, folder = ('translation', 'original'), f'from_en/{second}'
    else:
      sides, folder = ('original', 'translation'), f'to_en/{first}'
    lines = (
      '\t'.join(row[key] for key in (*sides, 'z_mean'))
      for _, row in file_reading.read_csv(path, quoted=False)
    )
    split = 'test' if split == 'test20' else split
    file_names.append(write_lines(output, f'{folder}/{split}.tsv', lines))
  return file_names


def _xstory_cloze_name(path: pathlib.Path) -> str:
  language = path.name.split('.')[2]
  split = 'test' if 'split_20_80_eval' in path.name else 'train'
  return f'{language}/{split}.tsv'


convert_belebele = _create_copy_converter(
  '*_*.jsonl', lambda path: f'{path.stem}/test.jsonl'
)
convert_xcopa = _create_copy_converter(
  '*.??.jsonl',
  lambda path: f'{path.parent.name}/{path.name.split(".")[0]}.jsonl',
)
convert_xstory_cloze = _create_copy_converter(
  '*.tsv.split_20_80_*.tsv', _xstory_cloze_name
)
convert_xwinograd = _create_copy_converter(
  'test/??.jsonl', lambda path: f'{path.stem.replace("jp", "ja")}/test.jsonl'
)
