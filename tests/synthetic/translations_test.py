"""Pairs, links, dictionaries, mining and retrieval sets."""

import pytest

from xlflax.data.corpus.directory import Corpus
from xlflax.data.dictionaries.dictionary import Dictionary
from xlflax.data.labelled.readers import word_alignment
from xlflax.synthetic import sources, typology
from xlflax.synthetic.concepts import CONCEPTS, is_anchorable

_CODES = tuple(typology.PRESETS)[1:]
_PARTICLES = ('past', 'future')


@pytest.mark.parametrize('code', _CODES)
def test_links_join_words_that_translate_each_other(folder, code):
  examples = word_alignment.read(
    [
      folder.path / f'alignment/test.en-{code}.{end}' for end in ('txt', 'gold')
    ],
    ('en', code),
  ).examples
  en, other = folder.readers['en'], folder.readers[code]
  for example in examples:
    source = en.glosses(example.source_words)
    target = other.glosses(example.target_words)
    linked = {i for i, _ in example.sure}
    assert len(linked) == len({j for _, j in example.sure}) == len(example.sure)
    assert {j for _, j in example.sure} == set(range(len(target)))
    for i, j in example.sure:
      assert source[i] == target[j] or (
        i == len(source) - 1 and j == len(target) - 1
      )
    assert all(
      source[i] in _PARTICLES for i in range(len(source)) if i not in linked
    )
    marks = other.marks(example.target_words)
    for i, j in example.possible - example.sure:
      assert source[i] in marks[j]
    assert {i for i, _ in example.possible} == set(range(len(source)))


@pytest.mark.parametrize('code', _CODES)
def test_no_text_has_two_translations(folder, code):
  corpus = Corpus(folder.path / 'corpus')
  pairs = [
    pair
    for split in ('train', 'validation', 'test')
    for pair in corpus.parallel('en', code, split)
  ]
  assert (
    len({p.source for p in pairs})
    == len({p.target for p in pairs})
    == (len(set(pairs)))
  )


def test_test_pairs_are_the_same_in_all_languages(folder):
  corpus = Corpus(folder.path / 'corpus')
  sides = [
    [p.source for p in corpus.parallel('en', code, 'test')] for code in _CODES
  ]
  assert all(side == sides[0] for side in sides)
  trained = [{p.source for p in corpus.parallel('en', code)} for code in _CODES]
  assert all(not found & set(sides[0]) for found in trained)
  assert trained[0] != trained[1]


@pytest.mark.parametrize('code', _CODES)
def test_dictionaries(folder, code):
  en, other = (folder.readers[c].lexicon for c in ('en', code))
  full = Dictionary.read(folder.path / f'corpus/dictionaries/en-{code}.tsv')
  for entry in full.entries:
    concept = folder.readers['en'].glosses([entry.word])[0]
    assert other.stems[concept] == entry.translation
  parts = [
    Dictionary.read(
      folder.path / f'dictionaries/en-{code}.{split}.txt', format='muse'
    )
    for split in ('train', 'test')
  ]
  words = [{entry.word for entry in part.entries} for part in parts]
  assert not words[0] & words[1]
  assert words[0] | words[1] == {
    en.stems[c.id] for c in CONCEPTS.values() if is_anchorable(c)
  }


@pytest.mark.parametrize('code', _CODES)
def test_mining_hides_translations_among_others(folder, code):
  mined = sources.mined(folder.path, 'test').load(f'{code}-en')
  assert len(mined.first) == len(mined.second) == 2 * folder.options.held_out
  assert len(mined.gold) == folder.options.held_out

  def read(side, text):
    reader = folder.readers[side]
    glosses = reader.glosses(reader.words(text)[:-1])
    return sorted(g for g in glosses if g not in _PARTICLES)

  for one, two in mined.gold:
    assert read(code, mined.first[one]) == read('en', mined.second[two])
  others = {
    tuple(read(code, text))
    for name, text in mined.first.items()
    if name not in {one for one, _ in mined.gold}
  }
  assert len(others) > 0.9 * folder.options.held_out


def test_retrieval_is_line_by_line(folder):
  for code in _CODES:
    rows = [
      [row[0] for row in folder.rows(f'tatoeba/test.{code}-en.{side}')]
      for side in (code, 'en')
    ]
    assert len(rows[0]) == len(set(rows[0])) == folder.options.held_out
    for one, two in zip(*rows, strict=True):
      concepts = [
        {
          g
          for g in folder.readers[side].glosses(
            folder.readers[side].words(text)[:-1]
          )
          if g not in _PARTICLES
        }
        for side, text in ((code, one), ('en', two))
      ]
      assert concepts[0] == concepts[1]
