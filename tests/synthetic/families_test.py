"""Labels of sentences, derived again by an oracle that reads the text."""

import collections
import json

import pytest

from tests.slow import mark_slow
from tests.synthetic import oracle
from xlflax.synthetic import inference, typology
from xlflax.synthetic.concepts import CONCEPTS
from xlflax.synthetic.draws import Draws
from xlflax.synthetic.sampling import Sampler

_CODES = tuple(typology.PRESETS)
_PARTICLES = {'past', 'future'}


def _clauses(folder, text, code='en'):
  reader = folder.readers[code]
  return oracle.parse(reader.glosses(reader.words(text)))


def _content(reader, text):
  """Concepts of a text in any order; tense may be an affix."""
  return collections.Counter(
    c
    for c in reader.glosses(reader.words(text))
    if c not in _PARTICLES and c not in oracle.STOPS
  )


@pytest.mark.parametrize('split', mark_slow(['train', 'test'], slow=['train']))
def test_inference_labels_hold_in_models(folder, split):
  for premise, hypothesis, label in folder.rows(f'nli/{split}.en.tsv'):
    [first], [second] = (
      _clauses(folder, text) for text in (premise, hypothesis)
    )
    assert oracle.inference(first, second) == label, (premise, hypothesis)


def test_inference_labels_are_balanced(folder):
  rows = folder.rows('nli/test.en.tsv')
  counts = collections.Counter(row[2] for row in rows)
  assert set(counts) == set(inference.LABELS)
  assert min(counts.values()) > 0.25 * len(rows)


def test_negation_alone_does_not_tell(folder):
  """Every label has hypotheses with a negation and without."""
  rows = [
    row
    for split in ('train', 'test')
    for row in folder.rows(f'nli/{split}.en.tsv')
  ]
  found = collections.defaultdict(set)
  for _, hypothesis, label in rows:
    found[label].add(_clauses(folder, hypothesis)[0].denied)
  assert all(kinds == {True, False} for kinds in found.values())


def test_without_hard_inference_negation_tells():
  sampler = Sampler(Draws('easy'))
  for _ in range(200):
    pair = inference.draw(sampler, hard_share=0.0)
    denied = (
      pair.hypothesis.negated or pair.hypothesis.subjects[0].determiner == 'no'
    )
    assert denied == (pair.label == 'contradiction')


def test_paraphrases_have_the_same_words_and_meaning_decides(folder):
  labels = collections.Counter()
  for split in ('train', 'test'):
    for one, two, label in folder.rows(f'paraphrase/{split}.en.tsv'):
      words = [sorted(text.split()) for text in (one, two)]
      assert words[0] == words[1] and one != two
      same = oracle.meaning(_clauses(folder, one)) == oracle.meaning(
        _clauses(folder, two)
      )
      assert str(int(same)) == label, (one, two)
      labels[label] += 1
  assert min(labels.values()) > 0.4 * sum(labels.values())


def test_reviews_say_what_the_opinion_and_its_negation_say(folder):
  for split in ('train', 'test'):
    for text, label in folder.rows(f'reviews/{split}.en.tsv'):
      sentences = [s for s in text.split(' . ')]
      [opinion] = [
        c
        for s in sentences
        for c in _clauses(folder, s.removesuffix(' .'))
        if CONCEPTS[c.verb].polarity
      ]
      good = (CONCEPTS[opinion.verb].polarity > 0) != opinion.denied
      assert label == ('positive' if good else 'negative')


@pytest.mark.parametrize('kind', ['nli', 'paraphrase', 'reviews'])
@pytest.mark.parametrize('code', _CODES[1:])
def test_translations_have_the_same_concepts_and_label(folder, kind, code):
  for pivot, other in zip(
    folder.rows(f'{kind}/test.en.tsv'),
    folder.rows(f'{kind}/test.{code}.tsv'),
    strict=True,
  ):
    assert pivot[-1] == other[-1]
    for one, two in zip(pivot[:-1], other[:-1], strict=True):
      assert _content(folder.readers['en'], one) == _content(
        folder.readers[code], two
      )


def _questions(folder, name):
  data = json.loads((folder.path / name).read_text(encoding='utf-8'))['data']
  for article in data:
    for paragraph in article['paragraphs']:
      for question in paragraph['qas']:
        yield paragraph['context'], question


@pytest.mark.parametrize('code', _CODES)
def test_answers_occur_once(folder, code):
  count = 0
  for context, question in _questions(folder, f'qa/test.{code}.json'):
    [answer] = question['answers']
    start = answer['answer_start']
    assert context[start : start + len(answer['text'])] == answer['text']
    assert context.count(answer['text']) == 1
    count += 1
  assert count >= folder.options.held_out


def test_answers_are_what_the_question_leaves_open(folder):
  roles = collections.Counter()
  reader = folder.readers['en']
  for context, question in _questions(folder, 'qa/train.en.json'):
    asked = reader.glosses(reader.words(question['question']))[:-1]
    wanted = next(g for g in asked if g in ('who', 'what', 'where'))
    # In English order the question is a clause with a gap.
    if wanted == 'where':
      asked.remove('where')
    [gap] = oracle.parse(asked)
    facts = [
      c
      for sentence in context.removesuffix(' .').split(' . ')
      for c in _clauses(folder, sentence)
    ]
    fitting = [
      f
      for f in facts
      if f.verb == gap.verb
      and f.tense == gap.tense
      and (wanted == 'who' or f.subjects == gap.subjects)
      and (wanted == 'what' or f.object == gap.object)
    ]
    assert len(fitting) == 1, question
    answer = oracle._phrase(
      reader.glosses(question['answers'][0]['text'].split())
    )
    assert (
      answer
      == {
        'who': fitting[0].subjects[0],
        'what': fitting[0].object,
        'where': fitting[0].place,
      }[wanted]
    )
    roles[wanted] += 1
  assert len(roles) == 3 and min(roles.values()) > 5


def test_cross_lingual_questions_pair_the_monolingual_ones(folder):
  mixed = list(_questions(folder, 'qa/test.aa-en.json'))
  contexts = list(_questions(folder, 'qa/test.aa.json'))
  questions = list(_questions(folder, 'qa/test.en.json'))
  for (context, question), one, two in zip(
    mixed, contexts, questions, strict=True
  ):
    assert context == one[0] and question['answers'] == one[1]['answers']
    assert question['question'] == two[1]['question']
    assert question['id'] == one[1]['id'] == two[1]['id']
