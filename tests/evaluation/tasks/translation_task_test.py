"""Tests of the translation task with a copying model."""

import dataclasses

import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.evaluation import eval_task, text_sources, translation_options
from xlflax.evaluation.tasks import translation_task
from xlflax.utils import errors

pytest_plugins = [
  'tests.evaluation.fixtures',
  'tests.evaluation.translation_fixtures',
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FullWidthPairs(text_sources.PairSource):
  """de-en pairs whose second sentence has letters that NFKC replaces."""

  def pairs(self):
    return (('de', 'en'),)

  def load(self, pair):
    text = ['the small dog sleeps well', 'warm milk and the ｃａｔ ａｌｏｎｅ']
    return text_sources.PairedText(text, text)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Pairs(text_sources.PairSource):
  """Equal de-en pairs, disjoint en-ja pairs, and pairs of an unknown language."""

  which: tuple

  def pairs(self):
    return self.which

  def load(self, pair):
    text = [
      'the small dog sleeps 1',
      'warm milk and the cat 2',
      'the cat drinks milk 3',
    ]
    if 'ja' in pair:
      return text_sources.PairedText(text, ['ねむる'] * 3)
    return text_sources.PairedText(text, text)


def _evaluate(eval_model, which, **options):
  return translation_task.TranslationEval(
    source=_Pairs(which=which), **options
  ).evaluate(eval_model)


@pytest.mark.parametrize(
  'reference, hypothesis, warns',
  [
    ("I don 't know , he said .", "I don't know, he said.", True),
    ("I don't know, he said.", "I don 't know , he said .", True),
    ("I don 't know , he said .", "I don 't know , she said .", False),
    ('Il dit : oui, bon.', 'Il dit: oui, bon.', False),
  ],
)
def test_tokenization_of_one_side_causes_a_warning(
  caplog, reference, hypothesis, warns
):
  notes = []
  translation_task._check_spacing(
    'de-en', [reference] * 30, [hypothesis] * 30, notes
  )
  messages = [message for message in caplog.messages if 'de-en' in message]
  assert len(notes) == len(messages) == warns
  for message in messages:
    assert_mentions(message, '100 %', '0 %')


def test_copies_score_100_for_equal_sides(copier):
  result = _evaluate(copier, (('de', 'en'), ('en', 'ja')))
  assert result.metrics['tokenized_bleu/de-en'] == pytest.approx(100)
  assert result.metrics['tokenized_bleu/mean'] == pytest.approx(100)
  for metric in ('bleu', 'chrf'):
    assert result.metrics[f'{metric}/de-en'] == pytest.approx(100)
    assert result.metrics[f'{metric}/en-ja'] < 5
    assert result.metrics[f'{metric}/mean'] == pytest.approx(
      50 + result.metrics[f'{metric}/en-ja'] / 2
    )
  assert result.metrics['sentences/de-en'] == 3
  assert result.files['de-en.txt'] == (
    'the small dog sleeps 1\nwarm milk and the cat 2\nthe cat drinks milk 3\n'
  )
  assert set(result.files) == {
    f'{direction}.{end}'
    for direction in ('de-en', 'en-ja')
    for end in ('txt', 'examples')
  }
  assert result.failures == ()


def test_the_score_of_perfect_translations_is_noted(copier):
  result = translation_task.TranslationEval(source=_FullWidthPairs()).evaluate(
    copier
  )
  best = round(result.metrics['bleu/de-en'], 1)  # The model copies.
  assert best < 90
  assert any(
    '1 of 2' in note and f'{best:.1f}' in note for note in result.notes
  )
  result = _evaluate(copier, (('de', 'en'),))
  assert not any('perfect' in note for note in result.notes)


def test_signatures_and_settings_are_noted(copier):
  notes = '\n'.join(_evaluate(copier, (('de', 'en'), ('en', 'ja'))).notes)
  assert 'bleu/de-en: nrefs:1|case:mixed|eff:no|tok:13a' in notes
  assert 'bleu/en-ja: nrefs:1|case:mixed|eff:no|tok:' in notes
  assert '|moses:' in notes and 'tokenized_bleu/en-ja is not available' in notes
  assert 'de-en: beam 5, length penalty 1, early stopping exact' in notes
  short = _evaluate(
    copier,
    (('de', 'en'),),
    options=translation_options.TranslationOptions(max_length=8),
  )
  assert '3 sentences of de-en were truncated to 8 tokens' in short.notes


@pytest.mark.parametrize(
  'direction, names', [('backward', ['en-de']), ('both', ['de-en', 'en-de'])]
)
def test_direction_selects_the_translations(copier, direction, names):
  result = _evaluate(copier, (('de', 'en'),), direction=direction)
  assert [
    name.removesuffix('.txt') for name in result.files if name.endswith('.txt')
  ] == names


def test_failed_language_does_not_affect_other_languages(copier):
  result = _evaluate(copier, (('xx', 'en'), ('de', 'en')))
  assert result.metrics['bleu/de-en'] == pytest.approx(100)
  (failure,) = result.failures
  assert failure.part == 'xx-en' and 'Got: xx' in failure.message


def test_encoder_without_decoder_is_rejected(eval_model):
  result = eval_task.evaluate_task(
    translation_task.TranslationEval(source=_Pairs(which=(('de', 'en'),))),
    eval_model,
  )
  (failure,) = result.failures
  assert 'EncoderDecoder' in failure.message


def test_tsv_pairs_are_read(tmp_path):
  path = tmp_path / 'test.tsv'
  path.write_text('\ufeffa b\tä b\r\nc\tz\u2028z\n\tnone\n', encoding='utf-8')
  source = translation_task.TsvPairs(files={'en-de': str(path)})
  assert source.pairs() == (('en', 'de'),)
  assert source.load(('en', 'de')) == (
    ['a b', 'c', ''],
    ['ä b', 'z\u2028z', 'none'],
  )
  single_pair = dataclasses.replace(source, max_pairs=1)
  assert single_pair.load(('en', 'de')) == (['a b'], ['ä b'])
  assert single_pair.fingerprint() != source.fingerprint()


@pytest.mark.parametrize(
  'content, values',
  [
    ('a\tb\nc\n', 'test.tsv:2'),
    ('a\tb\nc\td\te\n', (3, 'test.tsv:2')),
    (None, 'test.tsv'),
    (b'\xff\tb\n', ('UTF-8', 'test.tsv:1')),
  ],
)
def test_malformed_tsv_pairs_are_rejected(tmp_path, content, values):
  path = tmp_path / 'test.tsv'
  if content is not None:
    path.write_bytes(
      content if isinstance(content, bytes) else content.encode()
    )
  source = translation_task.TsvPairs(files={'en-de': str(path)})
  with raises_error(errors.CorpusError, mentions=values):
    source.load(('en', 'de'))
  with raises_error(errors.ConfigError, got='ende'):
    translation_task.TsvPairs(files={'ende': str(path)})
