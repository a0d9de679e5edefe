"""The languages that the experiments are about."""

import pytest

from xlflax.replication import worlds

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
  assert 5 < len(world.translations) < AMOUNTS.held_out
  for first, second in world.translations:
    assert {*first.split()} & {*second.split()} <= {'.', ',', '?'}


def test_shared_words_are_the_anchors(world):
  words = {word for word in world.shared_words if word.isalnum()}
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
