"""The languages that the experiments are about."""

import dataclasses

import pytest

from xlflax.replication import worlds
from xlflax.synthetic import sources

AMOUNTS = worlds.Amounts(
  sentences=30, pairs=20, examples=20, held_out=60, anchors=0.3, merges=60
)


@pytest.fixture(scope='module')
def world(tmp_path_factory):
  made = worlds.World(
    tmp_path_factory.mktemp('work'), worlds.Text.OTHER_DOMAIN, AMOUNTS
  )
  made.write()
  return made


def test_written_once(world):
  path = world.folder / 'corpus' / 'mono' / 'en.txt'
  before = path.stat().st_mtime_ns
  world.write()
  assert path.stat().st_mtime_ns == before


def test_translations_share_no_word(world):
  assert 5 < len(world.translations('xx')) < AMOUNTS.held_out
  for first, second in world.translations('xx'):
    assert {*first.split()} & {*second.split()} <= {'.', ',', '?'}


def test_shared_words_are_the_anchors(world):
  words = {word for word in world.shared_words('xx') if word.isalnum()}
  assert words
  for line in world.dictionary().read_text().splitlines():
    first, second = line.split()
    assert (first in words) <= (first == second)


def test_shuffled_dictionary_has_the_same_words_in_other_pairs(world):
  right, wrong = (
    [line.split() for line in path.read_text().splitlines()]
    for path in (world.dictionary(), world.shuffled_dictionary())
  )
  assert sorted(second for _, second in right) == sorted(
    second for _, second in wrong
  )
  assert not any(one == other for one, other in zip(right, wrong, strict=True))


def test_both_texts_have_one_vocabulary(world):
  assert world.plain().text is worlds.Text.SAME_DOMAIN
  assert world.plain().plain() == world.plain()


def test_tests_are_the_first_sentences(world, monkeypatch):
  monkeypatch.setattr(worlds, '_TESTED', 7)
  whole = world.folder / 'pos' / 'test.xx.conllu'
  found = world.tagged('test', 'xx').load('xx')
  assert len(found) == 7
  assert len(whole.read_text().split('\n\n')) > 7


def test_premises_are_translated_in_the_same_order(world, monkeypatch):
  monkeypatch.setattr(worlds, '_INFERRED', 6)
  first, second = (
    world.inference('train', code).load(code) for code in ('en', 'xx')
  )
  assert len(first) == 6
  assert [one.label for one in first] == [one.label for one in second]
  assert all(a.text != b.text for a, b in zip(first, second, strict=True))


def test_words_in_another_order_keep_their_links(world):
  part = 'en-xx'
  whole = sources.labelled(world.folder, 'alignment', 'test').load(part)
  found = world.aligned.load(part)
  assert [one.source_words for one in found] == [
    one.source_words for one in whole
  ]
  assert any(
    a.target_words != b.target_words for a, b in zip(found, whole, strict=True)
  )
  for mine, other in zip(found, whole, strict=True):
    assert _linked(mine) == _linked(other)


def _linked(example) -> set[tuple[int, str]]:
  """The linked words, the first as its place, the second as a string."""
  return {(i, example.target_words[j]) for i, j in example.sure}


def test_wrong_pairs_have_the_same_sides(world):
  wrong = dataclasses.replace(world, text=worlds.Text.WRONG_PAIRS)
  for one in (wrong, world.plain()):
    one.write()
  pairs, right = (
    [
      line.split('\t')
      for line in (one.folder / 'corpus' / 'parallel' / 'en-xx.tsv')
      .read_text()
      .splitlines()
    ]
    for one in (wrong, world.plain())
  )
  assert len(pairs) == AMOUNTS.pairs
  assert not any(pair in right for pair in pairs)
  for side in (0, 1):
    assert sorted(p[side] for p in pairs) == sorted(p[side] for p in right)
