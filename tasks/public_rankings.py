"""Downloads of rankings, and of pairs to train for them, as folders.

See `public_converters`; folders are those that `beir.RankedFolder` and
`finetune/search.gin` read.
"""

import json
import pathlib
import re
from collections.abc import Iterable, Mapping

from xlflax.data.preprocessing import text_processing
from xlflax.data.supervised.readers import file_reading
from xlflax.data.supervised.sources import beir
from xlflax.tasks.public_converters import Written, write

_BRACES = re.compile(r'\{(.*?)\}')


def lareqa(source: pathlib.Path, output: pathlib.Path) -> Written:
  """One ranking of all languages: a question asks for sentences in any."""
  queries, documents, relevance = [], [], []
  for path in sorted(source.rglob('*.json')):
    language = path.stem
    data = file_reading.read_json(path)['data']
    paragraphs = [p for article in data for p in article['paragraphs']]
    for number, paragraph in enumerate(paragraphs):
      context, breaks = paragraph['context'], paragraph['sentence_breaks']
      names = [f'{language}-{number}-{i}' for i in range(len(breaks))]
      documents += [
        {
          '_id': name,
          'text': _answer(context[start:stop], context),
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
        right = [context[a:b] for a, b in breaks if a <= place < b][:1]
        relevance += [
          (asked['id'], name)
          for name, (start, stop) in zip(names, breaks, strict=True)
          if context[start:stop] in right
        ]
  if not queries:
    return []
  answers: dict[str, list[str]] = {}
  for question, document in relevance:
    answers.setdefault(question, []).append(document)
  return _ranking(
    output,
    beir.ALL,
    queries,
    documents,
    (
      f'{query["_id"]} 0 {document} 1'
      for query in queries
      for document in answers.get(query['_id'].split('-', 1)[1], ())
    ),
  )


def _answer(sentence: str, paragraph: str) -> str:
  """What XTREME-R reads of a sentence of a paragraph."""
  return (sentence + paragraph).replace('\n', '')


def lareqa_training(source: pathlib.Path, output: pathlib.Path) -> Written:
  """Questions with the sentence that has the answer, of SQuAD v1.1.

  `train.jsonl` and `dev.jsonl`, as `finetune/search.gin` reads them. Sentences
  are sentencex's; XTREME-R has rules of its own.
  """
  written = []
  for path in sorted(source.rglob('*-v1.1.json')):
    rows = []
    for article in file_reading.read_json(path)['data']:
      for paragraph in article['paragraphs']:
        context = paragraph['context']
        ends, start = [], 0
        for sentence in text_processing.sentences_of(context, 'en'):
          start = context.index(sentence, start) + len(sentence)
          ends.append((start - len(sentence), start))
        for asked in paragraph['qas']:
          place = asked['answers'][0]['answer_start']
          rows += [
            {
              'query': asked['question'],
              'positive': _answer(context[first:last], context),
            }
            for first, last in ends
            if first <= place < last
          ]
    written.append(_write_json(output, path.name.split('-')[0], rows))
  return written


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
      for _, value in file_reading.read_json_lines(part)
    )
    lines = {
      f'{beir.QUERIES}.tsv': (
        text for _, text in file_reading.read_lines(topics)
      ),
      f'{beir.DOCUMENTS}.jsonl': rows,
      beir.RELEVANCE: (text for _, text in file_reading.read_lines(path)),
    }
    written += [
      write(output, f'{language}/{name}', several)
      for name, several in lines.items()
    ]
  return written


def mldr(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`<split>/<language>/` of rankings, and `train/<language>.jsonl`."""
  written: Written = []
  for folder in sorted(source.rglob('mldr-v1.0-*')):
    language = folder.name.rpartition('-')[2]
    for path in sorted(folder.glob('*.jsonl*')):
      split = path.name.split('.')[0]
      if split in ('dev', 'test'):
        asked = [value for _, value in file_reading.read_json_lines(path)]
        (corpus,) = folder.glob('corpus.jsonl*')
        written += _ranking(
          output,
          f'{split}/{language}',
          ({'_id': one['query_id'], 'text': one['query']} for one in asked),
          (
            {'_id': value['docid'], 'text': value['text']}
            for _, value in file_reading.read_json_lines(corpus)
          ),
          (
            f'{one["query_id"]} 0 {right["docid"]} 1'
            for one in asked
            for right in one['positive_passages']
          ),
        )
      elif split == 'train':
        rows = (
          {
            'query': value['query'],
            'positive': value['positive_passages'][0]['text'],
            'negatives': [one['text'] for one in value['negative_passages']],
          }
          for _, value in file_reading.read_json_lines(path)
        )
        written.append(_write_json(output, f'train/{language}', rows))
  return written


def xtreme_up(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`<task>/<split>/<language>/`: a question asks for its passage."""
  written: Written = []
  for index in sorted(source.rglob('retrieval_*_lang/index.jsonl')):
    pool = [value for _, value in file_reading.read_json_lines(index)]
    for path in sorted(index.parent.glob('*/*.jsonl')):
      asked = [value for _, value in file_reading.read_json_lines(path)]
      written += _ranking(
        output,
        f'{index.parent.name}/{path.parent.name}/{path.stem}',
        (
          {'_id': str(i), 'text': one['question'].lower()}
          for i, one in enumerate(asked)
        ),
        (
          {
            '_id': str(one['id']),
            'text': f'{one["title"]} {one["context"]}'.lower(),
          }
          for one in pool
        ),
        (f'{i} 0 {one["id"]} 1' for i, one in enumerate(asked)),
      )
  return written


def mewslix(source: pathlib.Path, output: pathlib.Path) -> Written:
  """`<split>/all/`: a mention in its sentence asks for an entity.

  Botha et al. 2020; Ruder et al. 2021, "XTREME-R". A query is the mention, and
  its sentence with the mention in braces; a document is an entity's
  description. Mentions without an entity, as XTREME-R's script leaves them,
  have no relevant document. `train.jsonl` and `train-dev.jsonl` are pairs of
  Wikipedia to fine-tune on by `finetune/search.gin`.
  """
  found = sorted(source.rglob('candidate_set_entities.jsonl'))
  written: Written = []
  for path in sorted(source.rglob('wikipedia_pairs-*.jsonl')):
    name = 'train' if path.stem.endswith('-train') else 'train-dev'
    rows = (
      {
        'query': _mention(pair['context'], pair['mention'])['text'],
        'positive': _entity(value['entity'])['text'],
      }
      for _, value in file_reading.read_json_lines(path)
      for pair in (value['contextual_mention'],)
    )
    written.append(_write_json(output, name, rows))
  for split in ('dev', 'test') if found else ():
    articles = [
      value
      for path in _mewslix_files(source, split)
      for _, value in file_reading.read_json_lines(path)
    ]
    if articles:
      asked = [
        (article['context'], mention)
        for article in articles
        for mention in article['mentions']
      ]
      written += _ranking(
        output,
        f'{split}/{beir.ALL}',
        (_mention(*one) for one in asked),
        (_entity(value) for _, value in file_reading.read_json_lines(found[0])),
        (
          f'{mention["example_id"]} 0 {mention["entity_id"]} 1'
          for _, mention in asked
          if mention['entity_id']
        ),
      )
  return written


def _mewslix_files(source: pathlib.Path, split: str) -> list[pathlib.Path]:
  """The published file of a split, or XTREME-R's, one for each language."""
  return sorted(source.rglob(f'wikinews_mentions-{split}.jsonl')) or sorted(
    source.rglob(f'wikinews_mentions/{split}-*.jsonl')
  )


def _mention(context: Mapping, mention: Mapping) -> dict[str, str]:
  span = mention['mention_span']
  inside = [
    one
    for one in context['sentence_spans']
    if one['start'] < span['end'] and span['start'] < one['end']
  ]
  start = min((one['start'] for one in inside), default=span['start'])
  end = max((one['end'] for one in inside), default=span['end'])
  text, name = context['text'], context['text'][span['start'] : span['end']]
  left, right = (
    _BRACES.sub(r'(\1)', side)
    for side in (
      text[min(start, span['start']) : span['start']],
      text[span['end'] : max(end, span['end'])],
    )
  )
  return {
    '_id': mention['example_id'],
    'text': _spaced(f'{name}: {left} {{ {name} }} {right}'),
    'language': context['language'],
  }


def _entity(value: Mapping) -> dict[str, str]:
  """Its sentences; all of the description where none are told."""
  text = value['description']
  found = [text[x['start'] : x['end']] for x in value['sentence_spans']]
  return {
    '_id': value['entity_id'],
    'text': _spaced(' '.join(found) or text),
    'language': value['description_language'],
  }


def _spaced(text: str) -> str:
  """Without line ends and doubled spaces, as XTREME-R has it."""
  return ' '.join(text.splitlines()).replace('  ', ' ').strip()


def _ranking(
  output: pathlib.Path,
  place: str,
  queries: Iterable[Mapping[str, str]],
  documents: Iterable[Mapping[str, str]],
  relevance: Iterable[str],
) -> Written:
  """The files of a part of a folder of rankings."""
  return [
    _write_json(output, f'{place}/{beir.QUERIES}', queries),
    _write_json(output, f'{place}/{beir.DOCUMENTS}', documents),
    write(output, f'{place}/{beir.RELEVANCE}', relevance),
  ]


def _write_json(
  output: pathlib.Path, name: str, rows: Iterable[Mapping[str, str]]
) -> str:
  lines = (json.dumps(row, ensure_ascii=False) for row in rows)
  return write(output, f'{name}.jsonl', lines)
