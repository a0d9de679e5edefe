"""Functions that convert public retrieval data sets and fine-tuning pairs.

See `public_converters` for the interface. Retrieval tasks are written in the
format that `beir.BeirDataset` reads, and pairs in the format that
`finetune/search.gin` reads.
"""

import json
import pathlib
import re
from collections.abc import Iterable, Mapping

from xlflax.data.preprocessing import text_processing
from xlflax.data.supervised.readers import file_reading
from xlflax.data.supervised.sources import beir
from xlflax.tasks.public_converters import FileNames, write_lines

_BRACES = re.compile(r'\{(.*?)\}')


def convert_lareqa(source: pathlib.Path, output: pathlib.Path) -> FileNames:
  """Writes LAReQA as one retrieval task with the texts of all languages.

  The queries are questions, and the relevant documents are sentences in any
  language that contain the answer.
  """
  queries, documents, relevant_pairs = [], [], []
  for path in sorted(source.rglob('*.json')):
    language = path.stem
    articles = file_reading.read_json(path)['data']
    paragraphs = [
      paragraph for article in articles for paragraph in article['paragraphs']
    ]
    for number, paragraph in enumerate(paragraphs):
      context = paragraph['context']
      spans = paragraph['sentence_breaks']
      names = [f'{language}-{number}-{i}' for i in range(len(spans))]
      documents += [
        {
          '_id': name,
          'text': _sentence_document(context[start:stop], context),
          'language': language,
        }
        for name, (start, stop) in zip(names, spans, strict=True)
      ]
      for question in paragraph['qas']:
        queries.append(
          {
            '_id': f'{language}-{question["id"]}',
            'text': question['question'],
            'language': language,
          }
        )
        answer_start = question['answers'][0]['answer_start']
        answer_sentences = [
          context[start:stop]
          for start, stop in spans
          if start <= answer_start < stop
        ][:1]
        relevant_pairs += [
          (question['id'], name)
          for name, (start, stop) in zip(names, spans, strict=True)
          if context[start:stop] in answer_sentences
        ]
  if not queries:
    return []

  relevant_documents: dict[str, list[str]] = {}
  for question_id, document_id in relevant_pairs:
    relevant_documents.setdefault(question_id, []).append(document_id)
  relevance = (
    f'{query["_id"]} 0 {document_id} 1'
    for query in queries
    for document_id in relevant_documents.get(query['_id'].split('-', 1)[1], ())
  )
  return _write_ranking(output, beir.ALL, queries, documents, relevance)


def _sentence_document(sentence: str, paragraph: str) -> str:
  """Joins a sentence and its paragraph to a document, as in XTREME-R."""
  return (sentence + paragraph).replace('\n', '')


def convert_lareqa_training(
  source: pathlib.Path, output: pathlib.Path
) -> FileNames:
  """Writes SQuAD v1.1 questions with the sentences that contain the answer.

  The files `train.jsonl` and `dev.jsonl` have the format of
  `finetune/search.gin`. Sentences are split by sentencex, whereas XTREME-R uses
  its own rules.
  """
  file_names = []
  for path in sorted(source.rglob('*-v1.1.json')):
    rows = []
    for article in file_reading.read_json(path)['data']:
      for paragraph in article['paragraphs']:
        context = paragraph['context']
        spans = []
        stop = 0
        for sentence in text_processing.split_sentences(context, 'en'):
          start = context.index(sentence, stop)
          stop = start + len(sentence)
          spans.append((start, stop))
        for question in paragraph['qas']:
          answer_start = question['answers'][0]['answer_start']
          rows += [
            {
              'query': question['question'],
              'positive': _sentence_document(context[start:stop], context),
            }
            for start, stop in spans
            if start <= answer_start < stop
          ]
    split = path.name.split('-')[0]
    file_names.append(_write_json_lines(output, split, rows))
  return file_names


def convert_miracl(source: pathlib.Path, output: pathlib.Path) -> FileNames:
  """Writes the retrieval tasks of MIRACL's dev set to `<language>/`."""
  file_names: FileNames = []
  for path in sorted(source.rglob('qrels.miracl-v1.0-*-dev.tsv')):
    language = path.name.split('-')[2]
    (topics,) = source.rglob(f'topics.miracl-v1.0-{language}-dev.tsv')
    document_files = sorted(
      source.rglob(f'miracl-corpus-v1.0-{language}/docs-*.jsonl*')
    )
    queries = (text for _, text in file_reading.read_lines(topics))
    documents = (
      json.dumps(value, ensure_ascii=False)
      for document_file in document_files
      for _, value in file_reading.read_json_lines(document_file)
    )
    relevance = (text for _, text in file_reading.read_lines(path))
    file_names += [
      write_lines(output, f'{language}/{beir.QUERIES}.tsv', queries),
      write_lines(output, f'{language}/{beir.DOCUMENTS}.jsonl', documents),
      write_lines(output, f'{language}/{beir.RELEVANCE}', relevance),
    ]
  return file_names


def convert_mldr(source: pathlib.Path, output: pathlib.Path) -> FileNames:
  """Writes MLDR's retrieval tasks and training pairs.

  Retrieval tasks are written to `<split>/<language>/`, and training pairs to
  `train/<language>.jsonl`.
  """
  file_names: FileNames = []
  for folder in sorted(source.rglob('mldr-v1.0-*')):
    language = folder.name.rpartition('-')[2]
    for path in sorted(folder.glob('*.jsonl*')):
      split = path.name.split('.')[0]
      if split in ('dev', 'test'):
        questions = [value for _, value in file_reading.read_json_lines(path)]
        (corpus,) = folder.glob('corpus.jsonl*')
        queries = (
          {'_id': question['query_id'], 'text': question['query']}
          for question in questions
        )
        documents = (
          {'_id': value['docid'], 'text': value['text']}
          for _, value in file_reading.read_json_lines(corpus)
        )
        relevance = (
          f'{question["query_id"]} 0 {passage["docid"]} 1'
          for question in questions
          for passage in question['positive_passages']
        )
        file_names += _write_ranking(
          output, f'{split}/{language}', queries, documents, relevance
        )
      elif split == 'train':
        rows = (
          {
            'query': value['query'],
            'positive': value['positive_passages'][0]['text'],
            'negatives': [
              passage['text'] for passage in value['negative_passages']
            ],
          }
          for _, value in file_reading.read_json_lines(path)
        )
        file_names.append(_write_json_lines(output, f'train/{language}', rows))
  return file_names


def convert_xtreme_up(source: pathlib.Path, output: pathlib.Path) -> FileNames:
  """Writes XTREME-UP's retrieval tasks to `<task>/<split>/<language>/`.

  The queries are questions, and the relevant document for each question is its
  passage.
  """
  file_names: FileNames = []
  for index in sorted(source.rglob('retrieval_*_lang/index.jsonl')):
    passages = [value for _, value in file_reading.read_json_lines(index)]
    for path in sorted(index.parent.glob('*/*.jsonl')):
      questions = [value for _, value in file_reading.read_json_lines(path)]
      queries = (
        {'_id': str(i), 'text': question['question'].lower()}
        for i, question in enumerate(questions)
      )
      documents = (
        {
          '_id': str(passage['id']),
          'text': f'{passage["title"]} {passage["context"]}'.lower(),
        }
        for passage in passages
      )
      relevance = (
        f'{i} 0 {question["id"]} 1' for i, question in enumerate(questions)
      )
      file_names += _write_ranking(
        output,
        f'{index.parent.name}/{path.parent.name}/{path.stem}',
        queries,
        documents,
        relevance,
      )
  return file_names


def convert_mewslix(source: pathlib.Path, output: pathlib.Path) -> FileNames:
  """Writes Mewsli-X's retrieval tasks to `<split>/all/`.

  A query is an entity mention, followed by the sentence in which it occurs,
  with the mention in braces. A document is an entity's description. XTREME-R's
  script creates some mentions without an entity, and these have no relevant
  document. `train.jsonl` and `train-dev.jsonl` contain pairs from Wikipedia for
  fine-tuning with `finetune/search.gin`.

  Botha et al. 2020; Ruder et al. 2021, "XTREME-R".
  """
  entity_files = sorted(source.rglob('candidate_set_entities.jsonl'))
  file_names: FileNames = []
  for path in sorted(source.rglob('wikipedia_pairs-*.jsonl')):
    name = 'train' if path.stem.endswith('-train') else 'train-dev'
    rows = (
      {
        'query': _mention_query(pair['context'], pair['mention'])['text'],
        'positive': _entity_document(value['entity'])['text'],
      }
      for _, value in file_reading.read_json_lines(path)
      for pair in (value['contextual_mention'],)
    )
    file_names.append(_write_json_lines(output, name, rows))
  if not entity_files:
    return file_names

  for split in ('dev', 'test'):
    articles = [
      article
      for path in _mewslix_files(source, split)
      for _, article in file_reading.read_json_lines(path)
    ]
    if not articles:
      continue
    mentions = [
      (article['context'], mention)
      for article in articles
      for mention in article['mentions']
    ]
    queries = (
      _mention_query(context, mention) for context, mention in mentions
    )
    documents = (
      _entity_document(value)
      for _, value in file_reading.read_json_lines(entity_files[0])
    )
    relevance = (
      f'{mention["example_id"]} 0 {mention["entity_id"]} 1'
      for _, mention in mentions
      if mention['entity_id']
    )
    file_names += _write_ranking(
      output, f'{split}/{beir.ALL}', queries, documents, relevance
    )
  return file_names


def _mewslix_files(source: pathlib.Path, split: str) -> list[pathlib.Path]:
  """Returns a split's file in Mewsli-X, or its files in XTREME-R.

  XTREME-R has one file for each language.
  """
  return sorted(source.rglob(f'wikinews_mentions-{split}.jsonl')) or sorted(
    source.rglob(f'wikinews_mentions/{split}-*.jsonl')
  )


def _mention_query(context: Mapping, mention: Mapping) -> dict[str, str]:
  """Returns the query for a mention in its context."""
  text = context['text']
  span = mention['mention_span']
  sentences = [
    sentence
    for sentence in context['sentence_spans']
    if sentence['start'] < span['end'] and span['start'] < sentence['end']
  ]
  start = min([span['start'], *(sentence['start'] for sentence in sentences)])
  end = max([span['end'], *(sentence['end'] for sentence in sentences)])
  name = text[span['start'] : span['end']]
  text_before = _BRACES.sub(r'(\1)', text[start : span['start']])
  text_after = _BRACES.sub(r'(\1)', text[span['end'] : end])
  return {
    '_id': mention['example_id'],
    'text': _normalize_spaces(
      f'{name}: {text_before} {{ {name} }} {text_after}'
    ),
    'language': context['language'],
  }


def _entity_document(value: Mapping) -> dict[str, str]:
  """Returns the document that describes an entity.

  The text consists of the specified sentences from the entity's description. If
  no sentences are specified, it is the entire description.
  """
  description = value['description']
  sentences = [
    description[span['start'] : span['end']] for span in value['sentence_spans']
  ]
  return {
    '_id': value['entity_id'],
    'text': _normalize_spaces(' '.join(sentences) or description),
    'language': value['description_language'],
  }


def _normalize_spaces(text: str) -> str:
  """Removes line ends and double spaces, as in XTREME-R."""
  return ' '.join(text.splitlines()).replace('  ', ' ').strip()


def _write_ranking(
  output: pathlib.Path,
  folder: str,
  queries: Iterable[Mapping[str, str]],
  documents: Iterable[Mapping[str, str]],
  relevance: Iterable[str],
) -> FileNames:
  """Writes the files of a retrieval task and returns their names."""
  return [
    _write_json_lines(output, f'{folder}/{beir.QUERIES}', queries),
    _write_json_lines(output, f'{folder}/{beir.DOCUMENTS}', documents),
    write_lines(output, f'{folder}/{beir.RELEVANCE}', relevance),
  ]


def _write_json_lines(
  output: pathlib.Path, name: str, rows: Iterable[Mapping[str, str]]
) -> str:
  lines = (json.dumps(row, ensure_ascii=False) for row in rows)
  return write_lines(output, f'{name}.jsonl', lines)
