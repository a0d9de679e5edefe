"""Tests of corpora that are built from aligned pages."""

import json

import pytest

from tests.errors import raises_error
from xlflax.data.corpus import corpus_directory
from xlflax.data.corpus_builders import aligned_corpora
from xlflax.data.corpus_builders.html_pages import Page
from xlflax.utils import errors

_HELD_OUT = aligned_corpora.HeldOut(validation=0.2, test=0.3)


def _texts(count=40):
  """Returns English pages and two translations.

  The German text of every fifth page is not translated.
  """
  languages = {'en': [], 'de': [], 'fi': []}
  for page in range(count):
    ids = [f'{page}.{i}' for i in range(3)]
    for code, language_texts in languages.items():
      texts = {i: f'{code} text {i}' for i in ids}
      texts['note'] = f'{code} note on all pages'
      texts['number'] = '12.5'
      if code == 'de' and page % 5 == 0:
        texts[ids[0]] = f'en TEXT {ids[0]}!'
      language_texts.append(Page(f'page{page}', texts))
  return languages


def _lines(folder, language, split):
  return [
    line.text
    for line in corpus_directory.Corpus(folder).monolingual(language, split)
  ]


@pytest.fixture(params=list(aligned_corpora.Mode))
def written_corpus(request, tmp_path):
  report = aligned_corpora.write_aligned_corpus(
    _texts(), tmp_path / 'c', pivot='en', mode=request.param, held_out=_HELD_OUT
  )
  return request.param, tmp_path / 'c', report


def test_training_text_excludes_held_out_text(written_corpus):
  mode, folder, report = written_corpus
  for code in ('en', 'de', 'fi'):
    train = set(_lines(folder, code, 'train'))
    held = set(_lines(folder, code, 'test'))
    held |= set(_lines(folder, code, 'validation'))
    assert train and held and not train & held
    assert f'{code} note on all pages' in held
    numbers = report['languages'][code]
    assert numbers['train']['paragraphs'] == len(train)
    assert numbers['dropped']['without letters'] == 40
    if mode is aligned_corpora.Mode.PARALLEL:
      assert numbers['dropped']['held out'] >= 1
  assert json.loads((folder / aligned_corpora.REPORT).read_text()) == report


def test_untranslated_sides_are_dropped(written_corpus):
  _, folder, report = written_corpus
  assert report['languages']['de']['dropped']['not translated'] == 8
  assert 'not translated' not in report['languages']['fi']['dropped']
  for split in corpus_directory.SPLITS:
    assert not any('TEXT' in line for line in _lines(folder, 'de', split))


def test_empty_paragraphs_are_counted(tmp_path):
  texts = _texts()
  for code, num_empty in {'en': 1, 'de': 2, 'fi': 0}.items():
    for page in texts[code][:num_empty]:
      page.paragraphs['empty'] = ' '
  report = aligned_corpora.write_aligned_corpus(texts, tmp_path, pivot='en')
  languages = report['languages']
  assert languages['en']['dropped']['empty'] == 1
  assert languages['de']['dropped']['empty'] == 2
  assert 'empty' not in languages['fi']['dropped']
  for code, pages in texts.items():
    # The note and the number occur on all pages.
    num_paragraphs = sum(
      languages[code][split]['paragraphs'] for split in corpus_directory.SPLITS
    )
    num_dropped = sum(languages[code]['dropped'].values())
    assert num_paragraphs + num_dropped == sum(
      len(page.paragraphs) for page in pages
    )


def test_pairs_of_aligned_pages(written_corpus):
  mode, folder, report = written_corpus
  corpus = corpus_directory.Corpus(folder)
  for code in ('de', 'fi'):
    for split, count in report['languages'][code]['pairs'].items():
      if mode is aligned_corpora.Mode.DISJOINT and split == 'train':
        assert count == 0
        continue
      pairs = list(corpus.parallel('en', code, split))
      assert len(pairs) == count > 0
      assert all(a.split()[1:] == b.split()[1:] for a, b in pairs)


def test_disjoint_text_has_one_language(tmp_path):
  aligned_corpora.write_aligned_corpus(
    _texts(),
    tmp_path,
    pivot='en',
    mode=aligned_corpora.Mode.DISJOINT,
    held_out=_HELD_OUT,
  )
  texts = [
    {line.partition(' ')[2] for line in _lines(tmp_path, code, 'train')}
    for code in ('en', 'de', 'fi')
  ]
  assert all(texts)
  assert sum(map(len, texts)) == len(set.union(*texts))


def test_output_is_deterministic(tmp_path):
  for name in ('a', 'b'):
    aligned_corpora.write_aligned_corpus(_texts(), tmp_path / name, pivot='en')
  for path in (tmp_path / 'a').rglob('*.*'):
    other = tmp_path / 'b' / path.relative_to(tmp_path / 'a')
    assert path.read_bytes() == other.read_bytes()


def test_vowel_signs_distinguish_paragraphs():
  assert aligned_corpora.paragraph_key('मेरा') != aligned_corpora.paragraph_key(
    'मेरी'
  )
  assert aligned_corpora.paragraph_key(
    'Save  as…'
  ) == aligned_corpora.paragraph_key('saveas')


def test_invalid_arguments_are_rejected(tmp_path):
  with raises_error(errors.CorpusError, mentions=('sw', 'en', 'de', 'fi')):
    aligned_corpora.write_aligned_corpus(_texts(), tmp_path / 'c', pivot='sw')
  (tmp_path / 'file').touch()
  with raises_error(errors.CorpusError, got=tmp_path, mentions='--output'):
    aligned_corpora.write_aligned_corpus(_texts(), tmp_path, pivot='en')
  texts = _texts() | {'fi': _texts()['en']}
  with raises_error(errors.CorpusError, mentions='fi'):
    aligned_corpora.write_aligned_corpus(texts, tmp_path / 'c', pivot='en')


def test_language_codes_are_validated_before_reading(tmp_path):
  def pages():
    raise AssertionError('read')
    yield

  with raises_error(errors.CorpusError) as caught:
    aligned_corpora.write_aligned_corpus(
      {'en': pages(), 'pt-BR': pages()}, tmp_path / 'c', pivot='en'
    )
  assert caught.value.got == 'pt-BR'
  assert not list(tmp_path.iterdir())


def test_late_error_leaves_no_corpus(tmp_path):
  languages = {**_texts(), 'xx': [Page('page0', {'note': '12'})]}
  output = tmp_path / 'c'
  output.mkdir()
  with raises_error(errors.CorpusError, mentions='xx'):
    aligned_corpora.write_aligned_corpus(
      languages, output, pivot='en', held_out=_HELD_OUT
    )
  assert list(tmp_path.rglob('*')) == [output]
