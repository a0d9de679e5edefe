"""Downloads of public data sets, converted into folders that are read.

Each function takes the folder of what was downloaded and the one to be
written, and returns the names of the files that it wrote.
"""

import logging
import pathlib
import shutil
from collections.abc import Callable, Iterable

from xlflax.data.supervised.readers import file_reading
from xlflax.storage import paths
from xlflax.utils import errors

_MASSIVE = {'train': 'train', 'dev': 'validation', 'test': 'test'}
_BY_CHARACTER = ('ja-JP', 'zh-CN', 'zh-TW')
Written = list[str]


def write(output: pathlib.Path, name: str, lines: Iterable[str]) -> str:
  path = output / name
  path.parent.mkdir(parents=True, exist_ok=True)
  paths.write_atomically(
    path, lambda file: file.writelines(f'{line}\n'.encode() for line in lines)
  )
  return name


def _copied(
  pattern: str, name: Callable[[pathlib.Path], str]
) -> Callable[[pathlib.Path, pathlib.Path], Written]:
  """A converter that copies files of a pattern to names of the project's."""

  def convert(source: pathlib.Path, output: pathlib.Path) -> Written:
    written = []
    for path in sorted(source.rglob(pattern)):
      if name(path) in written:
        raise errors.CorpusError(
          'Two files of a download would have one name',
          got=f'{path}, as another one: {name(path)}',
          where=str(source),
          fix='give the folder of one of them',
        )
      target = output / name(path)
      target.parent.mkdir(parents=True, exist_ok=True)
      shutil.copyfile(path, target)
      written.append(name(path))
    return written

  return convert


def sib200(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`<language>/<split>.tsv` of `text<TAB>topic`, unquoted."""
  written = []
  for path in sorted(source.rglob('*_*/*.tsv')):
    rows = [row for _, row in file_reading.read_csv(path)]
    if rows and {'text', 'category'} <= set(rows[0]):
      name = f'{path.parent.name}/{path.stem}.tsv'
      lines = [f'{" ".join(r["text"].split())}\t{r["category"]}' for r in rows]
      written.append(write(output, name, lines))
  return written


def massive(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`intents/<locale>/<split>.tsv` and `slots/<locale>/<split>.conll`."""
  written = []
  for path in sorted(source.rglob('??-??.jsonl')):
    rows = [value for _, value in file_reading.read_json_lines(path)]
    for partition, split in _MASSIVE.items():
      own = [row for row in rows if row['partition'] == partition]
      if own:
        intents = [f'{row["utt"]}\t{row["intent"]}' for row in own]
        slots = [
          '\n'.join(slot_lines(row['annot_utt'], path.stem)) + '\n'
          for row in own
        ]
        place = f'{path.stem}/{split}'
        written += [
          write(output, f'intents/{place}.tsv', intents),
          write(output, f'slots/{place}.conll', slots),
        ]
  return written


def slot_lines(annotated: str, locale: str) -> list[str]:
  """`word<TAB>tag` lines of an utterance in MASSIVE's form.

  Words and slots are those of MASSIVE's own code (FitzGerald et al., 2023):
  Japanese and Chinese are split into characters, Latin words apart, and
  neighbours of one type are one slot. A Latin word at the end of a slot of
  these leaves it open there, and in published scores.

  Before: `wake me at [time : nine am]`; after: `wake\tO`, `me\tO`, `at\tO`,
  `nine\tB-time`, `am\tI-time`.
  """
  lines: list[str] = []
  slot = before = ''
  by_character = locale in _BY_CHARACTER
  chunks = iter(annotated.split())
  for chunk in chunks:
    if chunk.startswith('['):
      slot = chunk.lstrip('[')
      next(chunks, None)  # the colon
      continue
    closing = [']'] if chunk.endswith(']') and not by_character else []
    pieces = [chunk.rstrip(']'), *closing]
    for piece in chunk if by_character and not chunk.isascii() else pieces:
      if piece == ']':
        slot = ''
      elif piece:
        mark = ('I-' if slot == before else 'B-') + slot if slot else 'O'
        lines.append(f'{piece}\t{mark}')
        before = slot
  return lines


_ARTICLE = ('text', 'document', 'source')  # what GEM's sets call it


def seahorse(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`question<1-6>/<language>/<split>.tsv` of article, summary and rating.

  Articles are GEM's, which are not part of SEAHORSE: files of JSON lines with
  `gem_id` and the article. A summary without its article is left out.
  """
  articles = {
    value['gem_id']: next(value[key] for key in _ARTICLE if key in value)
    for path in sorted(source.rglob('*.jsonl*'))
    for _, value in file_reading.read_json_lines(path)
  }
  lines: dict[str, list[str]] = {}
  lost = 0
  for split in ('train', 'validation', 'test'):
    for path in sorted(source.glob(f'{split}.tsv')):
      for _, row in file_reading.read_csv(path):
        texts = [
          ' '.join(text.split())
          for text in (articles.get(row['gem_id'], ''), row['summary'])
        ]
        lost += not texts[0]
        language = row['worker_lang'].split('-')[0]
        for number in range(1, 7):
          rating = row[f'question{number}']
          if all((*texts, rating)):
            name = f'question{number}/{language}/{split}.tsv'
            lines.setdefault(name, []).append('\t'.join((*texts, rating)))
  if lost:
    logging.warning('%d summaries of SEAHORSE have no article here.', lost)
  return [write(output, name, several) for name, several in lines.items()]


def mlqe_pe(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`<from_en|to_en>/<language>/<split>.tsv`: that side, English, z_mean.

  As the shared tasks' baselines read it: no quoting, z-scores' mean.
  """
  written = []
  for path in sorted(source.rglob('*.df.short.tsv')):
    split, pair = path.name.split('.')[:2]
    first, second = pair[:2], pair[2:]
    sides, folder = ('original', 'translation'), f'to_en/{first}'
    if first == 'en':
      sides, folder = ('translation', 'original'), f'from_en/{second}'
    rows = file_reading.read_csv(path, quoted=False)
    written.append(
      write(
        output,
        f'{folder}/{"test" if split == "test20" else split}.tsv',
        ('\t'.join(row[key] for key in (*sides, 'z_mean')) for _, row in rows),
      )
    )
  return written


belebele = _copied('*_*.jsonl', lambda path: f'{path.stem}/test.jsonl')
xcopa = _copied(
  '*.??.jsonl',
  lambda path: f'{path.parent.name}/{path.name.split(".")[0]}.jsonl',
)


xstory_cloze = _copied(
  '*.tsv.split_20_80_*.tsv',
  lambda path: (
    f'{path.name.split(".")[2]}/'
    + ('test.tsv' if 'split_20_80_eval' in path.name else 'train.tsv')
  ),
)
xwinograd = _copied(
  'test/??.jsonl', lambda path: f'{path.stem.replace("jp", "ja")}/test.jsonl'
)
