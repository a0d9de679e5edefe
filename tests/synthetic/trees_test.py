"""Trees, parts of speech and entities, checked from the files alone."""

import collections

import pytest

from xlflax.data.labelled.readers import conll, conllu
from xlflax.synthetic import typology
from xlflax.synthetic.concepts import CONCEPTS, PLURAL

_CODES = tuple(typology.PRESETS)
# Relation -> tags of the dependent and of its head.
_RELATIONS = {
  'root': ('VERB ADJ', ''),
  'punct': ('PUNCT', 'VERB ADJ'),
  'nsubj': ('NOUN PROPN', 'VERB ADJ'),
  'obj': ('NOUN PROPN', 'VERB'),
  'obl': ('NOUN PROPN', 'VERB'),
  'nmod': ('NOUN PROPN', 'NOUN'),
  'case': ('ADP', 'NOUN PROPN'),
  'det': ('DET', 'NOUN'),
  'nummod': ('NUM', 'NOUN'),
  'amod': ('ADJ', 'NOUN'),
  'flat': ('PROPN', 'PROPN'),
  'acl': ('VERB', 'NOUN'),
  'mark': ('SCONJ', 'VERB'),
  'aux': ('AUX', 'VERB ADJ'),
  'cop': ('AUX', 'ADJ'),
  'advmod': ('PART ADV', 'VERB ADJ'),
  'cc': ('CCONJ', 'NOUN PROPN VERB ADJ'),
  'conj': ('NOUN PROPN VERB ADJ', 'NOUN PROPN VERB ADJ'),
}


def _trees(folder, code, split='test'):
  return conllu.read_trees(
    folder.path / f'trees/{split}.{code}.conllu', code
  ).examples


@pytest.mark.parametrize('code', _CODES)
def test_trees_are_projective_with_one_root(folder, code):
  for tree in _trees(folder, code):
    assert tree.heads.count(0) == 1
    ends = [(min(i, h), max(i, h)) for i, h in enumerate(tree.heads, start=1)]
    for a, b in ends:
      assert not any(a < c < b < d for c, d in ends if c)
    for i in range(1, len(tree.words) + 1):
      steps = 0
      while i:
        i, steps = tree.heads[i - 1], steps + 1
        assert steps <= len(tree.words)


@pytest.mark.parametrize('code', _CODES)
def test_relations_fit_the_parts_of_speech(folder, code):
  seen = set()
  for tree in [*_trees(folder, code), *_trees(folder, code, 'train')]:
    for tag, head, relation in zip(
      tree.tags, tree.heads, tree.relations, strict=True
    ):
      tags, heads = _RELATIONS[relation]
      assert tag in tags.split()
      assert head == 0 or tree.tags[head - 1] in heads.split()
      seen.add(relation)
  assert seen == set(_RELATIONS)


@pytest.mark.parametrize('code', _CODES)
def test_order_is_the_typology(folder, code):
  """Of subject, verb and object; of adjectives, adpositions, determiners."""
  language = typology.PRESETS[code]
  sides = collections.defaultdict(set)
  orders = set()
  for tree in _trees(folder, code, 'train'):
    for i, (head, relation) in enumerate(
      zip(tree.heads, tree.relations, strict=True), start=1
    ):
      sides[relation].add('before' if i < head else 'after')
    places = {
      r: i
      for i, (r, h) in enumerate(zip(tree.relations, tree.heads, strict=True))
      if r in ('nsubj', 'obj') and h == tree.heads.index(0) + 1
    }
    if len(places) == 2 and 'VERB' == tree.tags[tree.heads.index(0)]:
      places['root'] = tree.heads.index(0)
      letters = {'nsubj': 's', 'root': 'v', 'obj': 'o'}
      orders.add(''.join(letters[r] for r in sorted(places, key=places.get)))
  assert orders == {language.word_order.value}
  for relation, side in (
    ('amod', language.adjective),
    ('case', language.adposition),
    ('det', language.determiner),
    ('nummod', language.determiner),
  ):
    assert sides[relation] == {side.value}
  owner = 'after' if language.adposition.value == 'before' else 'before'
  assert sides['nmod'] == sides['acl'] == {owner}


@pytest.mark.parametrize('code', ['aa', 'bb', 'cc', 'dd', 'ff'])
def test_affixes_mark_case_number_and_tense(folder, code):
  reader = folder.readers[code]
  agrees = typology.PRESETS[code].morphology is typology.Morphology.AGREEING
  for tree in _trees(folder, code):
    concepts = reader.glosses(tree.words)
    marks = reader.marks(tree.words)
    for i, (concept, relation) in enumerate(
      zip(concepts, tree.relations, strict=True)
    ):
      if concept in reader.lexicon.anchors or tree.tags[i] not in (
        'NOUN',
        'PROPN',
        'ADJ',
      ):
        continue
      head = tree.heads[i] - 1 if relation == 'amod' else i
      plural = any(
        tree.heads[j] == head + 1 and concepts[j] in PLURAL
        for j in range(len(concepts))
      )
      owns = (
        relation not in ('amod', 'flat', 'root')
        and (tree.tags[i] != 'ADJ')
        or relation == 'amod'
        and agrees
      )
      assert ('object' in marks[i]) == (
        owns and tree.relations[head] == 'obj'
      ), tree
      assert ('plural' in marks[i]) == (owns and plural), tree


def test_tags_and_entities_follow_from_the_words(folder):
  kinds = {'first_name': 'B-PER', 'last_name': 'I-PER', 'organisation': 'B-ORG'}
  for code, reader in folder.readers.items():
    for example in conllu.read_tags(
      folder.path / f'pos/test.{code}.conllu', code
    ).examples:
      assert [
        CONCEPTS[c].tag if c in CONCEPTS else 'PUNCT'
        for c in reader.glosses(example.words)
      ] == list(example.tags)
    for example in conll.read(
      folder.path / f'ner/test.{code}.iob2', code, word=1, tag=2, scheme='iob2'
    ).examples:
      concepts = reader.glosses(example.words)
      for i, (concept, tag) in enumerate(
        zip(concepts, example.tags, strict=True)
      ):
        group = CONCEPTS[concept].group if concept in CONCEPTS else ''
        if group == 'location':
          inside = i > 0 and concepts[i - 1] == 'new_place'
          assert tag == ('I-LOC' if inside else 'B-LOC')
        else:
          expected = {'company': 'I-ORG', 'new_place': 'B-LOC'}.get(concept)
          assert tag == (expected or kinds.get(group, 'O'))


def test_all_languages_have_the_same_entities(folder):
  counts = [
    collections.Counter(
      tag
      for example in conll.read(
        folder.path / f'ner/test.{code}.iob2',
        code,
        word=1,
        tag=2,
        scheme='iob2',
      ).examples
      for tag in example.tags
      if tag != 'O'
    )
    for code in _CODES
  ]
  assert all(count == counts[0] for count in counts)
  assert set(counts[0]) == {
    'B-PER',
    'I-PER',
    'B-LOC',
    'I-LOC',
    'B-ORG',
    'I-ORG',
  }
