"""Labels of choices, topics, rated pairs and open questions, read off again."""

import collections
import json

import pytest

from tests.synthetic import oracle
from xlflax.synthetic import sources
from xlflax.synthetic.concepts import CONCEPTS

_CODES = ('aa', 'bb', 'ee', 'gg')


def _concepts(folder, text, code):
  """What a text's content words mean, in any order."""
  reader = folder.readers[code]
  return collections.Counter(
    concept
    for concept in reader.glosses(reader.words(text))
    if concept not in oracle.STOPS and CONCEPTS[concept].group != 'function'
  )


def _topic(folder, text, code):
  found = {CONCEPTS[c].topic for c in _concepts(folder, text, code)} - {None}
  (topic,) = found
  return topic


@pytest.mark.parametrize('code', _CODES)
def test_topics_and_choices(folder, code):
  names = collections.defaultdict(set)
  for text, topic in folder.rows(f'topics/test.{code}.tsv'):
    names[topic].add(_topic(folder, text, code))
  assert names == {'country': {0}, 'town': {1}}
  lines = (folder.path / f'choices/train.{code}.jsonl').read_text().splitlines()
  right = collections.Counter()
  for line in map(json.loads, lines):
    topics = [
      _topic(folder, line[name], code)
      for name in ('premise', 'choice1', 'choice2')
    ]
    assert topics[1] != topics[2] and topics[1 + line['label']] == topics[0]
    right[line['label']] += 1
  assert min(right.values()) > 0.3 * len(lines)


@pytest.mark.parametrize('code', _CODES)
@pytest.mark.parametrize('kind, highest', [('similarity', 5), ('pairs', 1)])
def test_ratings_are_what_the_sentences_share(folder, code, kind, highest):
  shared = collections.defaultdict(list)
  for one, two, rating in folder.rows(f'{kind}/test.{code}-en.tsv'):
    first, second = _concepts(folder, one, code), _concepts(folder, two, 'en')
    assert (first == second) == (float(rating) == highest)
    shared[float(rating)].append((first & second).total() / first.total())
  means = [sum(v) / len(v) for _, v in sorted(shared.items())]
  assert means == sorted(means) and means[0] < 0.7
  assert len(means) == (5 if kind == 'similarity' else 2)


@pytest.mark.parametrize('code', _CODES)
def test_only_places_that_are_named_are_answers(folder, code):
  path = folder.path / f'unanswerable/test.{code}.json'
  reader = folder.readers[code]
  answered = collections.Counter()
  for article in json.loads(path.read_text())['data']:
    ((context, (question,)),) = (
      (p['context'], p['qas']) for p in article['paragraphs']
    )
    asks_where = 'where' in reader.glosses(reader.words(question['question']))
    places = [
      c
      for c in _concepts(folder, context, code)
      if CONCEPTS[c].group == 'location'
    ]
    assert question['is_impossible'] == (asks_where and not places)
    answered[bool(question['answers'])] += 1
    for answer in question['answers']:
      start = answer['answer_start']
      assert context[start : start + len(answer['text'])] == answer['text']
      assert _concepts(folder, answer['text'], code).keys() & set(places) or (
        not asks_where
      )
  assert min(answered.values()) > 0.15 * answered.total()


def test_altered_sentences_differ_in_one_place(folder):
  before = folder.rows('tatoeba/test.aa-en.en')
  after = folder.rows('tatoeba/test.en.altered')
  assert len(before) == len(after)
  for (one,), (two,) in zip(before, after, strict=True):
    first, second = (_concepts(folder, text, 'en') for text in (one, two))
    assert one != two
    assert (first - second).total() <= 2 and (second - first).total() <= 2


def test_rankings_ask_for_translations(folder):
  source = sources.rankings(folder.path, 'test')
  assert source.languages() == folder.options.codes[1:]
  held = source.load('aa')
  for query, relevant in held.relevance.items():
    (document,) = relevant
    asked, answer = held.queries[query], held.documents[document]
    assert (asked.language, answer.language) == ('en', 'aa')
    assert _concepts(folder, asked.text, 'en') == (
      _concepts(folder, answer.text, 'aa')
    )
