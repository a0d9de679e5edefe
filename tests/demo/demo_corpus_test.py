import time

import pytest

from xlflax.data.corpus import corpus_directory
from xlflax.demo import demo_corpus, held_out_split, message_text
from xlflax.utils import errors

pytest.importorskip('django')
pytest.importorskip('pycountry')


@pytest.fixture(scope='module')
def built(tmp_path_factory):
  directory = tmp_path_factory.mktemp('corpus')
  return directory, demo_corpus.build_corpus(directory)


def test_corpus_has_enough_languages_and_sentences(built):
  _, split = built
  assert len(demo_corpus.LANGUAGES) >= 12
  assert len(split.train) == len(demo_corpus.LANGUAGES) - 1
  for texts in split.train.values():
    assert len(texts) >= 450


def test_the_same_100_messages_are_held_out_in_all_languages(built):
  _, split = built
  tests = {tuple(texts) for texts in split.test.values()}
  assert len(tests) == 1
  (messages,) = tests
  assert len(messages) == 100
  assert all(len(text.split()) >= 3 for text in messages)
  assert not set(messages) & set(split.validation['de'])


def test_training_text_has_no_near_duplicates_of_held_out_text(built):
  directory, split = built
  corpus = corpus_directory.Corpus(directory)
  for name in ('test', 'validation'):
    for language in demo_corpus.LANGUAGES:
      held = [line.text for line in corpus.monolingual(language, name)]
      train = [line.text for line in corpus.monolingual(language, 'train')]
      similarity = held_out_split.similarity(train, held)
      assert similarity.max() < held_out_split.NEAR_DUPLICATE, (language, name)
  for language, texts in split.train.items():
    held = {
      message_text.normalize(side)
      for part in (split.test, split.validation)
      for pair in part[language].items()
      for side in pair
    }
    train = {
      message_text.normalize(side) for pair in texts.items() for side in pair
    }
    assert not held & train, language


def test_corpus_directory_contains_all_languages_and_pairs(built):
  directory, split = built
  corpus = corpus_directory.Corpus(directory)
  assert set(corpus.languages) == set(demo_corpus.LANGUAGES)
  assert set(corpus.pairs) == {('en', language) for language in split.train}
  pairs = list(corpus.parallel('en', 'ja', 'test'))
  assert [tuple(pair) for pair in pairs] == list(split.test['ja'].items())


def test_placeholders_and_markup_are_removed(built):
  _, split = built
  for texts in split.train.values():
    for text in (*texts, *texts.values()):
      assert '%(' not in text and '</' not in text and '&amp;' not in text
      assert '\t' not in text and text == ' '.join(text.split())


def test_dictionaries_contain_language_and_country_names(built):
  directory, _ = built
  lines = (directory / 'dictionaries' / 'en-de.tsv').read_text('utf-8')
  entries = dict(line.split('\t')[:2] for line in lines.splitlines())
  assert entries['Germany'] == 'Deutschland'
  assert len(entries) > 200


def test_languages_and_messages_can_be_limited(tmp_path):
  split = demo_corpus.build_corpus(
    tmp_path, languages=('en', 'de', 'ja'), num_test=12, num_validation=6
  )
  assert [len(texts) for texts in split.test.values()] == [12, 12]
  assert [len(texts) for texts in split.validation.values()] == [6, 6]


def test_existing_corpus_of_other_languages_is_rejected(tmp_path):
  demo_corpus.build_corpus(tmp_path, languages=('en', 'de'))
  demo_corpus.build_corpus(tmp_path, languages=('de', 'en'), num_test=20)
  with pytest.raises(errors.CorpusError) as caught:
    demo_corpus.build_corpus(tmp_path, languages=('en', 'ja'))
  assert 'differ from the requested languages. Got: de, en.' in str(
    caught.value
  )


def test_missing_package_is_reported():
  with pytest.raises(errors.CorpusError) as caught:
    demo_corpus.package_directory('xlflax_no_such_package')
  assert 'pip install xlflax_no_such_package' in str(caught.value)
  assert 'xlflax_no_such_package' in str(caught.value)


@pytest.mark.parametrize(
  ('languages', 'message'),
  [
    (('en', 'tlh'), "message catalogs for 'tlh'"),
    (('en', 'jp'), 'Did you mean ja?'),
    (('de', 'fr'), 'requires English'),
    (('en',), 'at least one additional language'),
  ],
)
def test_invalid_languages_are_rejected(tmp_path, languages, message):
  with pytest.raises(errors.CorpusError) as caught:
    demo_corpus.build_corpus(tmp_path, languages=languages)
  assert message in str(caught.value)


def test_existing_text_keeps_its_modification_time(tmp_path):
  """A resumed demo identifies cached files by their modification time."""
  times = []
  for _ in range(2):
    demo_corpus.build_corpus(tmp_path, languages=('en', 'de'), num_test=20)
    files = sorted(p for p in tmp_path.rglob('*') if p.is_file())
    times.append([path.stat().st_mtime_ns for path in files])
    time.sleep(0.01)
  assert len(times[0]) > 5 and times[0] == times[1]
