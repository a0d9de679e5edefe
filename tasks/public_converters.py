"""Downloads of public data sets, converted into folders that are read.

Each function takes the folder of what was downloaded and the one to be
written, and returns the names of the files that it wrote.
"""

import json
import pathlib
import shutil
from collections.abc import Callable, Iterable, Mapping

from xlflax.data.labelled.readers import files
from xlflax.data.labelled.sources import ranking
from xlflax.storage import paths

_MASSIVE = {'train': 'train', 'dev': 'validation', 'test': 'test'}
_BY_CHARACTER = ('ja-JP', 'zh-CN', 'zh-TW')
Written = list[str]


def _write(output: pathlib.Path, name: str, lines: Iterable[str]) -> str:
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
    rows = [row for _, row in files.read_csv(path)]
    if rows and {'text', 'category'} <= set(rows[0]):
      name = f'{path.parent.name}/{path.stem}.tsv'
      lines = [f'{" ".join(r["text"].split())}\t{r["category"]}' for r in rows]
      written.append(_write(output, name, lines))
  return written


def massive(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`intents/<locale>/<split>.tsv` and `slots/<locale>/<split>.conll`."""
  written = []
  for path in sorted(source.rglob('??-??.jsonl')):
    rows = [value for _, value in files.read_json_lines(path)]
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
          _write(output, f'intents/{place}.tsv', intents),
          _write(output, f'slots/{place}.conll', slots),
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


def lareqa(source: pathlib.Path, output: pathlib.Path) -> Written:
  """One ranking of all languages: a question asks for sentences in any."""
  queries, documents, relevance = [], [], []
  for path in sorted(source.rglob('*.json')):
    language = path.stem
    data = files.read_json(path)['data']
    paragraphs = [p for article in data for p in article['paragraphs']]
    for number, paragraph in enumerate(paragraphs):
      context, breaks = paragraph['context'], paragraph['sentence_breaks']
      names = [f'{language}-{number}-{i}' for i in range(len(breaks))]
      documents += [
        {
          '_id': name,
          'text': f'{context[start:stop]} {context}',
          'language': language,
        }
        for name, (start, stop) in zip(names, breaks, strict=True)
      ]
      for asked in paragraph['qas']:
        queries.append(
          {
            '_id': f'{language}-{asked["id"]}',
            'text': asked['question'],
            'language': language,
          }
        )
        place = asked['answers'][0]['answer_start']
        relevance += [
          (asked['id'], name)
          for name, (start, stop) in zip(names, breaks, strict=True)
          if start <= place < stop
        ]
  if not queries:
    return []
  answers: dict[str, list[str]] = {}
  for question, document in relevance:
    answers.setdefault(question, []).append(document)
  return [
    _write(
      output,
      f'{ranking.ALL}/{kind}.jsonl',
      (json.dumps(row, ensure_ascii=False) for row in rows),
    )
    for kind, rows in (
      (ranking.QUERIES, queries),
      (ranking.DOCUMENTS, documents),
    )
  ] + [
    _write(
      output,
      f'{ranking.ALL}/{ranking.RELEVANCE}',
      (
        f'{query["_id"]} 0 {document} 1'
        for query in queries
        for document in answers.get(query['_id'].split('-', 1)[1], ())
      ),
    )
  ]


def miracl(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`<language>/` with queries, documents and relevance of the dev set."""
  written: Written = []
  for path in sorted(source.rglob('qrels.miracl-v1.0-*-dev.tsv')):
    language = path.name.split('-')[2]
    (topics,) = source.rglob(f'topics.miracl-v1.0-{language}-dev.tsv')
    documents = sorted(
      source.rglob(f'miracl-corpus-v1.0-{language}/docs-*.jsonl*')
    )
    rows = (
      json.dumps(value, ensure_ascii=False)
      for part in documents
      for _, value in files.read_json_lines(part)
    )
    lines = {
      f'{ranking.QUERIES}.tsv': (text for _, text in files.read_lines(topics)),
      f'{ranking.DOCUMENTS}.jsonl': rows,
      ranking.RELEVANCE: (text for _, text in files.read_lines(path)),
    }
    written += [
      _write(output, f'{language}/{name}', several)
      for name, several in lines.items()
    ]
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


def mewslix(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`<split>/all/`: a mention in its sentence asks for an entity.

  Botha et al. 2020; Ruder et al. 2021, "XTREME-R". A query is the mention, and
  its sentence with the mention in braces; a document is an entity's
  description. Mentions without an entity, as XTREME-R's script leaves them,
  have no relevant document.
  """
  found = sorted(source.rglob('candidate_set_entities.jsonl'))
  written: Written = []
  for split in ('dev', 'test') if found else ():
    articles = [
      value
      for path in _mewslix_files(source, split)
      for _, value in files.read_json_lines(path)
    ]
    if articles:
      place = f'{split}/{ranking.ALL}'
      asked = [
        (article['context'], mention)
        for article in articles
        for mention in article['mentions']
      ]
      written += [
        _write_json(
          output,
          f'{place}/{ranking.QUERIES}',
          (_mention(*one) for one in asked),
        ),
        _write_json(
          output,
          f'{place}/{ranking.DOCUMENTS}',
          (_entity(value) for _, value in files.read_json_lines(found[0])),
        ),
        _write(
          output,
          f'{place}/{ranking.RELEVANCE}',
          (
            f'{mention["example_id"]} 0 {mention["entity_id"]} 1'
            for _, mention in asked
            if mention['entity_id']
          ),
        ),
      ]
  return written


def _mewslix_files(source: pathlib.Path, split: str) -> list[pathlib.Path]:
  """The published file of a split, or XTREME-R's, one for each language."""
  return sorted(source.rglob(f'wikinews_mentions-{split}.jsonl')) or sorted(
    source.rglob(f'wikinews_mentions/{split}-*.jsonl')
  )


def _mention(context: Mapping, mention: Mapping) -> dict[str, str]:
  span, text = mention['mention_span'], context['text']
  inside = [
    one
    for one in context['sentence_spans']
    if one['start'] < span['end'] and span['start'] < one['end']
  ]
  start = min((one['start'] for one in inside), default=span['start'])
  end = max((one['end'] for one in inside), default=span['end'])
  left, name, right = (
    text[min(start, span['start']) : span['start']],
    text[span['start'] : span['end']],
    text[span['end'] : max(end, span['end'])],
  )
  marked = f'{name}: {left} {{ {name} }} {right}'
  return {
    '_id': mention['example_id'],
    'text': ' '.join(marked.split()),
    'language': context['language'],
  }


def _entity(value: Mapping) -> dict[str, str]:
  return {
    '_id': value['entity_id'],
    'text': ' '.join(value['description'].split()),
    'language': value['description_language'],
  }


def _write_json(
  output: pathlib.Path, name: str, rows: Iterable[Mapping[str, str]]
) -> str:
  lines = (json.dumps(row, ensure_ascii=False) for row in rows)
  return _write(output, f'{name}.jsonl', lines)
