"""Tests of converting rankings and training pairs in published formats."""

import gzip
import json

from xlflax.data.supervised import file_formats
from xlflax.data.supervised.sources import beir
from xlflax.tasks import public_data


def _write(path, *values):
  path.parent.mkdir(parents=True, exist_ok=True)
  text = ''.join(json.dumps(value) + '\n' for value in values)
  if path.suffix == '.gz':
    path.write_bytes(gzip.compress(text.encode()))
  else:
    path.write_text(text, encoding='utf-8')


def _convert(name, folder):
  return public_data.convert(name, str(folder / 'in'), str(folder / 'out'))


def _load_ranking(folder, path, part):
  return beir.BeirDataset(directory=str(folder / 'out' / path)).load(part)


def _pairs(folder, name, texts):
  texts_read = file_formats.read_files(
    'search', str(folder / 'out' / name), 'en', texts=texts
  ).examples
  return [example.text for example in texts_read]


def test_mldr_is_converted(tmp_path):
  folder = tmp_path / 'in/mldr-v1.0-de'
  question = {
    'query_id': 'q-de-1',
    'query': 'Wer?',
    'positive_passages': [{'docid': 'doc-de-2', 'text': 'Sie.\nLang.'}],
    'negative_passages': [],
  }
  for split in ('dev', 'test'):
    _write(folder / f'{split}.jsonl.gz', question)
  right, *wrong = (
    {'docid': f'doc-de-{i}', 'text': text}
    for i, text in enumerate(('Er.', 'Es.', 'Wir.'))
  )
  _write(
    folder / 'train.jsonl.gz',
    question | {'positive_passages': [right], 'negative_passages': wrong},
  )
  _write(
    folder / 'corpus.jsonl.gz',
    {'docid': 'doc-de-2', 'text': 'Sie.\nLang.'},
    {'docid': 'doc-de-9', 'text': 'Niemand.'},
  )
  output_files = _convert('mldr', tmp_path)
  assert {name.split('/')[0] for name in output_files} == {
    'dev',
    'test',
    'train',
  }
  held = _load_ranking(tmp_path, 'test', 'de')
  assert held.queries == {'q-de-1': beir.Text('Wer?', 'de')}
  assert held.documents['doc-de-2'].text == 'Sie.\nLang.'
  assert held.relevance == {'q-de-1': {'doc-de-2': 1.0}}
  assert _pairs(tmp_path, 'train/de.jsonl', 4) == ['Wer?', 'Er.', 'Es.', 'Wir.']


def test_miracl_in_the_published_format_is_converted(tmp_path):
  # The loader of miracl/miracl-corpus reads the same gzipped JSON lines.
  start = tmp_path / 'in'
  _write(
    start / 'miracl-corpus-v1.0-sw/docs-0.jsonl.gz',
    {'docid': '1#0', 'title': 'A "title"', 'text': 'b\tc'},
  )
  _write(
    start / 'miracl-corpus-v1.0-sw/docs-1.jsonl.gz',
    {'docid': '2#3', 'title': '', 'text': 'é'},
  )
  for name, text in (
    ('topics', '7\tNani "huyu"?\r\n8\tWapi?\r\n'),
    ('qrels', '7\tQ0\t1#0\t1\r\n7\tQ0\t2#3\t0\r\n8\tQ0\t2#3\t1\r\n'),
  ):
    path = start / f'{name}.miracl-v1.0-sw-dev.tsv'
    path.write_bytes(text.encode())
  _convert('miracl', tmp_path)
  held = _load_ranking(tmp_path, '', 'sw')
  assert held.queries['7'] == beir.Text('Nani "huyu"?', 'sw')
  assert held.documents['1#0'].text == 'A "title" b\tc'
  assert held.documents['2#3'].text == 'é'
  assert held.relevance == {'7': {'1#0': 1.0, '2#3': 0.0}, '8': {'2#3': 1.0}}


def test_xtreme_up_questions_retrieve_their_passage(tmp_path):
  passages = [
    {'id': name, 'title': 'Titel', 'context': f'{name} Text'} for name in 'AB'
  ]
  folder = tmp_path / 'in/xtreme-up/retrieval_cross_lang'
  _write(folder / 'index.jsonl', *passages)
  questions = [
    passages[1] | {'question': question} for question in ('Ki?', 'Ke?')
  ]
  _write(folder / 'test/bn.jsonl', *questions)
  _convert('xtreme_up_retrieval', tmp_path)
  dataset = _load_ranking(tmp_path, 'retrieval_cross_lang/test', 'bn')
  # Lower case, title before context, as in baseline/retrieval_tasks.py.
  assert dataset.documents['B'].text == 'titel b text'
  assert [text.text for text in dataset.queries.values()] == ['ki?', 'ke?']
  assert dataset.relevance == {'0': {'B': 1.0}, '1': {'B': 1.0}}


def test_lareqa_training_pairs_are_created_from_squad(tmp_path):
  context = 'Dr. Smith went home. He slept.\nThen he woke.'
  questions = [
    {
      'id': name,
      'question': f'{name}?',
      'answers': [{'answer_start': answer_start}],
    }
    for name, answer_start in (('where', 15), ('what', 24), ('when', 31))
  ]
  paragraph = {'context': context, 'qas': questions}
  _write(
    tmp_path / 'in/train-v1.1.json', {'data': [{'paragraphs': [paragraph]}]}
  )
  assert _convert('lareqa_training', tmp_path) == ['train.jsonl']
  flat = context.replace('\n', '')
  assert _pairs(tmp_path, 'train.jsonl', 2) == [
    'where?',
    f'Dr. Smith went home.{flat}',
    'what?',
    f'He slept.{flat}',
    'when?',
    f'Then he woke.{flat}',
  ]


def test_mewslix_training_pairs_are_created_from_wikipedia(tmp_path):
  text = 'One {x}. A {strike} in Helsinki began.'
  pair = {
    'contextual_mention': {
      'context': {
        'language': 'en',
        'text': text,
        'sentence_spans': [{'start': 0, 'end': 8}, {'start': 9, 'end': 38}],
      },
      'mention': {
        'example_id': 'm',
        'entity_id': 'Q1757',
        'mention_span': {'start': 23, 'end': 31, 'text': 'Helsinki'},
      },
    },
    'entity': {
      'entity_id': 'Q1757',
      'description': 'A capital. [note] Of Finland.',
      'description_language': 'en',
      'sentence_spans': [{'start': 0, 'end': 10}, {'start': 18, 'end': 29}],
    },
  }
  for split in ('train', 'dev'):
    _write(tmp_path / f'in/wikipedia_pairs-{split}.jsonl', pair)
  assert _convert('mewslix', tmp_path) == ['train-dev.jsonl', 'train.jsonl']
  assert _pairs(tmp_path, 'train.jsonl', 2) == [
    'Helsinki: A (strike) in { Helsinki } began.',
    'A capital. Of Finland.',
  ]
