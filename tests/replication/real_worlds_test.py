"""Real languages: files as a user has them."""

import dataclasses
import math
import random
import shutil

import numpy as np
import pytest

from xlflax.foundation import errors
from xlflax.replication import experiments, real_worlds
from xlflax.replication.conditions import Condition, Loss, Size, Taken
from xlflax.replication.worlds import Text

WORDS = {
  'en': 'open the file and save a new page of your text here'.split(),
  'ru': 'открыть этот файл и сохранить новую страницу вашего текста тут'.split(),
  'zh': '打开 文件 保存 新 页面 文本 这里 窗口 菜单'.split(),
}
SIZE = Size(
  layers=1, hidden=8, batch=16, length=16, warmup=2, recipe=True, tagger_steps=2
)


def sentence(draw: random.Random, code: str) -> str:
  return ' '.join(draw.choices(WORDS[code], k=6))


@pytest.fixture(scope='module')
def folders(tmp_path_factory):
  """Corpora of both modes, and treebanks."""
  draw = random.Random(0)
  corpora = tmp_path_factory.mktemp('help')
  banks = tmp_path_factory.mktemp('ud')
  for code in WORDS:
    for kind, count in (('disjoint', 40), ('parallel', 120)):
      path = corpora / kind / 'mono' / f'{code}.txt'
      path.parent.mkdir(parents=True, exist_ok=True)
      path.write_text('\n'.join(sentence(draw, code) for _ in range(count)))
    for split in ('train', 'test'):
      rows = [
        ''.join(
          f'{i}\t{word}\t_\t{"NOUN" if len(word) % 2 else "VERB"}'
          + '\t_' * 6
          + '\n'
          for i, word in enumerate(sentence(draw, code).split(), 1)
        )
        for _ in range(12)
      ]
      (banks / f'{code}_x-ud-{split}.conllu').write_text('\n'.join(rows) + '\n')
  for split, count in (('.', 60), ('test', 30)):
    folder = corpora / 'parallel' / split / 'parallel'
    folder.mkdir(parents=True, exist_ok=True)
    for code in ('ru', 'zh'):
      pairs = [
        f'{sentence(draw, "en")}\t{sentence(draw, code)}{" PDF" * (i % 5 == 0)}'
        for i in range(count)
      ]
      pairs[0] = pairs[0].replace('\t', ' PDF\t')
      (folder / f'en-{code}.tsv').write_text('\n'.join(pairs) + '\n')
  return corpora, banks


@pytest.fixture
def texts(folders):
  return real_worlds.Texts.of(*folders)


def lines(world, *path: str) -> list[str]:
  return (world.folder / 'corpus').joinpath(*path).read_text().splitlines()


def test_languages_and_what_they_hold(texts, folders, tmp_path):
  assert texts.seconds == ('ru', 'zh')
  world = texts.world(tmp_path, Text.SAME_DOMAIN)
  world.write()
  corpora = folders[0]
  for code in WORDS:
    own = (corpora / 'disjoint/mono' / f'{code}.txt').read_text().splitlines()
    assert lines(world, 'mono', f'{code}.txt') == own
  same = texts.world(tmp_path, Text.SAME_PAGES)
  same.write()
  whole = (corpora / 'parallel/mono/ru.txt').read_text().splitlines()
  assert lines(same, 'mono', 'ru.txt') == whole[:40]


def test_wrong_pairs_have_the_same_sides(texts, tmp_path):
  right, wrong = (
    texts.world(tmp_path, text) for text in (Text.SAME_DOMAIN, Text.WRONG_PAIRS)
  )
  for world in (right, wrong):
    world.write()
  sides = [
    [line.split('\t') for line in lines(world, 'parallel', 'en-ru.tsv')]
    for world in (right, wrong)
  ]
  assert len(sides[0]) == 60
  assert sides[0] != sides[1]
  for side in (0, 1):
    assert sorted(p[side] for p in sides[0]) == sorted(
      p[side] for p in sides[1]
    )


def test_held_out_pairs_share_no_string(texts, tmp_path):
  world = texts.world(tmp_path, Text.SAME_DOMAIN)
  pairs = world.translations('ru')
  assert 20 < len(pairs) < 30  # the first has PDF on both sides
  assert pairs == world.translations('ru')
  assert not any('PDF' in first for first, _ in pairs)


class Letters:
  """A vocabulary of letters."""

  def encode_ragged(self, texts, *, language: str):
    del language
    return np.frombuffer(''.join(texts).encode(), np.uint8), None


def test_entropy_of_token_frequencies(texts, tmp_path, monkeypatch):
  world = texts.world(tmp_path, Text.SAME_DOMAIN)
  lines = {'en': ['aaab'], 'ru': ['ab'] * 16, 'zh': ['abcd'] * 16}
  monkeypatch.setattr(real_worlds, '_lines', lambda path: lines[path.stem])
  share = 16**0.7
  want = 0.75 * math.log(4 / 3) + 0.25 * math.log(4)
  want += share * (math.log(2) + math.log(4))
  found = world.probes(Letters())
  assert found == {'entropy': pytest.approx(want / (1 + 2 * share))}


def test_files_count_and_not_their_place(folders, texts, tmp_path):
  moved = tmp_path / 'elsewhere'
  shutil.copytree(folders[0], moved)
  same = real_worlds.Texts.of(moved, folders[1])
  assert same.digest == texts.digest
  path = moved / 'disjoint/mono/ru.txt'
  path.write_text(path.read_text() + '\nещё')
  assert real_worlds.Texts.of(moved, folders[1]).digest != texts.digest


def test_dictionaries_count_where_they_are_read(folders, texts, tmp_path):
  words = tmp_path / 'words'
  words.mkdir()
  (words / 'en-ru.tsv').write_text('cat\tкот\n', encoding='utf-8')
  own = real_worlds.Texts.of(*folders, words)
  assert own.read_by([BOTH]) == texts
  dictionary = dataclasses.replace(BOTH, taken=Taken.WITH_DICTIONARY)
  read = own.read_by([META, dictionary])
  assert read.digest == texts.digest and read.words
  assert own.world(tmp_path, Text.SAME_DOMAIN).dictionary() == words
  (words / 'en-ru.tsv').write_text('cat\tкит\n', encoding='utf-8')
  other = real_worlds.Texts.of(*folders, words)
  assert other.read_by([META, dictionary]) != read
  with pytest.raises(errors.ConfigError, match='no dictionaries'):
    real_worlds.Texts.of(*folders, tmp_path / 'nowhere')


def test_what_is_missing_is_told(folders, tmp_path):
  with pytest.raises(errors.ConfigError, match='--treebanks'):
    real_worlds.Texts.of(folders[0], None)
  with pytest.raises(errors.ConfigError, match='en_…-train'):
    real_worlds.Texts.of(folders[0], tmp_path)
  with pytest.raises(errors.ConfigError, match='xlflax corpora'):
    real_worlds.Texts.of(tmp_path, folders[1])
  shutil.copytree(folders[1], tmp_path / 'ud')
  shutil.copy(
    folders[1] / 'ru_x-ud-test.conllu', tmp_path / 'ud/ru_y-test.conllu'
  )
  with pytest.raises(errors.ConfigError, match='ru_y-test'):
    real_worlds.Texts.of(folders[0], tmp_path / 'ud')


META = Condition(
  name='t/meta',
  title='meta',
  steps=10,
  losses=(Loss.FIRST_LANGUAGE_MLM,),
  anchors=None,
  saved=True,
  measured=False,
)
BOTH = Condition(
  name='t/both',
  title='both',
  steps=10,
  losses=(Loss.MLM, Loss.TLM),
  begins_from='t/meta',
  taken=Taken.BOTH,
  interpolated=True,
)


@pytest.mark.slow
def test_runs_in_real_languages(texts, tmp_path, monkeypatch):
  """Measured in each language; what is begun from is made where it lacks."""
  monkeypatch.setattr(real_worlds.RealWorld, 'TESTED', 10)
  monkeypatch.setattr(real_worlds.RealWorld, 'LENGTH', 32)
  plan = experiments.Plan(
    conditions=(META, BOTH),
    seeds=(0,),
    amounts=dataclasses.replace(texts, merges=20),
    size=SIZE,
  )
  meta, both = experiments.run(plan, tmp_path)
  assert set(meta.measures) == {'loss'}
  for name in ('retrieval', 'transfer', 'shuffled_retrieval', 'partner_gain'):
    parts = [both.measures[f'{name}:{code}'] for code in ('ru', 'zh')]
    assert both.measures[name] == pytest.approx(sum(parts) / 2, abs=1e-4)
  # The results alone, on another machine: only what is missing is run.
  other = tmp_path / 'other'
  experiments.results.Store(other / 'results').take([meta])
  again = experiments.run(plan, other)
  assert again[0].measures == pytest.approx(meta.measures, abs=1e-4)
  assert again[1].measures['loss'] == pytest.approx(
    both.measures['loss'], rel=1e-3
  )
  assert (other / 'runs/t/meta/0').is_dir()
