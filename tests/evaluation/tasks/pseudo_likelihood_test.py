"""Compares pseudo-likelihoods with loops over logits in NumPy."""

import dataclasses
import json
import math
import unicodedata

import jax
import numpy as np
import pytest
from scipy import special

from tests.errors import raises_error
from tests.evaluation import one_hot_model
from tests.slow import mark_slow
from xlflax.data.supervised import file_formats
from xlflax.evaluation import hidden_states, text_sources
from xlflax.evaluation.tasks import pseudo_likelihood
from xlflax.utils import errors

pytest_plugins = ['tests.evaluation.fixtures']


@pytest.fixture(scope='module')
def log_p(eval_model):
  """Function that returns ln p [N, T, V] of rows of ids [N, T] in a language."""

  @jax.jit
  def logits(batch):
    return eval_model.model.apply(
      {'params': eval_model.params['model']},
      batch['token_ids'],
      segment_ids=batch['segment_ids'],
      positions=batch['positions'],
      language_ids=batch['language_ids'],
    )

  def of(rows, language):
    batch = hidden_states.token_rows(
      rows, np.full(len(rows), language), 32, 32, eval_model.vocabulary.spec
    )
    return special.log_softmax(np.float64(logits(batch))[: len(rows)], -1)

  return of


def _is_japanese(piece):
  """Returns whether the first letter is of a script without spaces."""
  letter = next(filter(str.isalpha, piece), 'a')
  return unicodedata.name(letter).startswith(('CJK', 'HIRAGANA', 'KATAKANA'))


def _expected_scores(eval_model, log_p, text, language, *, word):
  """Returns -ln p and correctness of each token, with one masked row each."""
  vocabulary = eval_model.vocabulary
  ids = vocabulary.encode(text, language=language)
  pieces = [vocabulary.piece(i) for i in ids]
  rows = []
  for position in range(len(ids)):
    row = list(ids)
    row[position] = vocabulary.spec.mask_id
    for later in range(position + 1, len(ids) if word else 0):
      if pieces[later].startswith('▁') or _is_japanese(pieces[later]):
        break
      row[later] = vocabulary.spec.mask_id
    rows.append(row)
  log_probs = log_p(rows, vocabulary.language_id(language))
  at = [log_probs[i, i + 1] for i in range(len(ids))]
  return (
    [-row[token] for row, token in zip(at, ids, strict=True)],
    [row.argmax() == token for row, token in zip(at, ids, strict=True)],
  )


@pytest.mark.parametrize('hidden', mark_slow(['token', 'word'], slow=['token']))
def test_pseudo_perplexity_agrees_with_numpy(
  corpus, eval_model, sentences, log_p, hidden
):
  task = pseudo_likelihood.PseudoPerplexity(
    source=text_sources.CorpusText(
      directory=corpus, languages=('de', 'ja'), max_lines=9
    ),
    mask_unit=hidden,
  )
  result = task.evaluate(eval_model)
  assert not result.failures and not result.notes
  losses = {}
  for language in ('de', 'ja'):
    texts = sentences(language, 9)
    scores = [
      _expected_scores(eval_model, log_p, text, language, word=hidden == 'word')
      for text in texts
    ]
    loss = np.concatenate([losses for losses, _ in scores])
    right = np.concatenate([hits for _, hits in scores])
    metrics = {name: value for name, value in result.metrics.items()}
    assert metrics[f'tokens/{language}'] == len(loss)
    assert metrics[f'loss/{language}'] == pytest.approx(loss.mean(), abs=1e-5)
    assert metrics[f'accuracy/{language}'] == pytest.approx(right.mean())
    losses[language] = loss.mean()
    num_words = sum(len(text.split()) for text in texts)
    num_bytes = sum(len(text.encode()) for text in texts)
    assert metrics[f'bits_per_byte/{language}'] == pytest.approx(
      loss.sum() / math.log(2) / num_bytes, rel=1e-4
    )
    if language == 'de':
      assert metrics['word_perplexity/de'] == pytest.approx(
        math.exp(loss.sum() / num_words), rel=1e-4
      )
      max_length = sorted(len(losses) for losses, _ in scores)[4]
      shorter = dataclasses.replace(task, max_length=max_length + 2)
      shorter = shorter.evaluate(eval_model)
      short_texts = [
        (np.sum(losses), len(text.split()))
        for (losses, _), text in zip(scores, texts, strict=True)
        if len(losses) <= max_length
      ]
      assert 4 < len(short_texts) < 9
      assert (
        f'{9 - len(short_texts)} sentences of de were truncated'
        in shorter.notes
      )
      assert shorter.metrics['word_perplexity/de'] == pytest.approx(
        math.exp(np.divide(*np.sum(short_texts, 0))), rel=1e-4
      )
  assert 'word_perplexity/ja' not in metrics
  assert metrics['perplexity/mean'] == pytest.approx(
    math.exp(np.mean(list(losses.values()))), rel=1e-4
  )


def test_masking_words_gives_higher_losses_than_tokens(corpus, eval_model):
  source = text_sources.CorpusText(
    directory=corpus, languages=('de',), max_lines=9
  )
  metrics = [
    pseudo_likelihood.PseudoPerplexity(source=source, mask_unit=hidden)
    .evaluate(eval_model)
    .metrics['loss/de']
    for hidden in ('token', 'word')
  ]
  assert metrics[0] != pytest.approx(metrics[1], abs=1e-3)


def test_truncated_and_empty_files(tmp_path, eval_model):
  (tmp_path / 'de.txt').write_text('der Hund\r\n\n' + 'die Katze ' * 20)
  (tmp_path / 'en.txt').write_text('\n')
  task = pseudo_likelihood.PseudoPerplexity(
    source=text_sources.FileText(
      files={code: str(tmp_path / f'{code}.txt') for code in ('de', 'en')}
    ),
    max_length=12,
  )
  result = task.evaluate(eval_model)
  ids = eval_model.vocabulary.encode('der Hund', language='de')
  assert result.metrics['tokens/de'] == len(ids) + 10
  assert result.notes == ('1 sentence of de was truncated',)
  (failure,) = result.failures
  assert failure.part == 'en'


def test_unknown_tokens_are_counted(tmp_path, eval_model):
  """Cyrillic letters are unknown to the vocabulary."""
  texts = {
    'de': ['der Hund', 'собака спит', 'die Katze ' * 20 + 'и собака'],
    'en': ['the dog sleeps', 'the cat'],
    'ja': ['いぬ が ねむる'] * 30 + ['いぬ ж ねむる'],
  }
  for language, lines in texts.items():
    (tmp_path / f'{language}.txt').write_text('\n'.join(lines))
  task = pseudo_likelihood.PseudoPerplexity(
    source=text_sources.FileText(
      files={code: str(tmp_path / f'{code}.txt') for code in texts}
    ),
    max_length=12,
  )
  result = task.evaluate(eval_model)
  rates = {}
  for language, lines in texts.items():
    ids = np.concatenate(
      [
        # Two of the 12 tokens are bos and eos.
        eval_model.vocabulary.encode(line, language=language)[-10:]
        for line in lines
      ]
    )
    assert result.metrics[f'tokens/{language}'] == len(ids)
    rates[language] = np.mean(ids == eval_model.vocabulary.spec.unk_id)
  assert rates['de'] > 0.01 > rates['ja'] > rates['en'] == 0
  recorded = {
    name: value for name, value in result.metrics.items() if 'unknown' in name
  }
  assert recorded == {
    'unknown_rate/de': pytest.approx(rates['de']),
    'unknown_rate/ja': pytest.approx(rates['ja']),
  }
  notes = [note for note in result.notes if 'unknown' in note]
  assert len(notes) == 1
  assert f'{100 * rates["de"]:.1f} %' in notes[0] and ' de ' in notes[0]
  assert not any('unknown' in content for content in result.files.values())


def test_scores_do_not_depend_on_the_batch_size(
  corpus, eval_model, with_batch_size
):
  source = text_sources.CorpusText(
    directory=corpus, languages=('en',), max_lines=5
  )
  task = pseudo_likelihood.PseudoPerplexity(source=source)
  metrics = [
    task.evaluate(variant).metrics['loss/en']
    for variant in (eval_model, with_batch_size(3))
  ]
  assert metrics[0] == pytest.approx(metrics[1], abs=1e-5)


@pytest.fixture
def choices(tmp_path):
  """Stories and schemas in the published format."""
  story = 'id\tder\tHund\tdie\tMilch\t{}\t{}\t{}\n'
  header = story.replace('{}', 'x')
  (tmp_path / 's.tsv').write_text(
    header
    + story.format('schläft', 'trinkt und schläft', 1)
    + story.replace('id', 'b').format('und', 'die', 2)
  )
  schema = {
    'sentence': 'der und die _ trinkt',
    'option1': 'Hund',
    'option2': 'Katze',
    'answer': '2',
  }
  (tmp_path / 'x.jsonl').write_text(json.dumps(schema) + '\n')
  return {
    name: file_formats.read_files(name, str(tmp_path / file), 'de').examples
    for name, file in (('xstory_cloze', 's.tsv'), ('xwinograd', 'x.jsonl'))
  }


@pytest.mark.parametrize('length_normalize', [False, True])
@pytest.mark.parametrize('scored', ['choice', 'all'])
def test_most_likely_choice_is_predicted(
  eval_model, log_p, choices, scored, length_normalize
):
  for examples in choices.values():
    task = pseudo_likelihood.LikelihoodChoice(
      source=one_hot_model.Held(parts=(('de', examples),)),
      scored_span=scored,
      length_normalize=length_normalize,
    )
    notes = []
    scores = task._score_choices(eval_model, 'de', examples, notes)
    expected = []
    for example in examples:
      text = f'{example.text} {example.paired_text}'
      losses, _ = _expected_scores(eval_model, log_p, text, 'de', word=False)
      start = len(eval_model.vocabulary.encode(example.text, language='de'))
      scored_losses = losses if scored == 'all' else losses[start:]
      expected.append(
        -(np.mean(scored_losses) if length_normalize else np.sum(scored_losses))
      )
    assert not notes
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    result = task.evaluate(eval_model)
    pairs = np.reshape(expected, (-1, 2))
    chosen = pairs.argmax(1).tolist()
    assert result.files['de.jsonl'] == ''.join(
      f'{{"label": {number}}}\n' for number in chosen
    )
    gold = [x.label == 'right' for x in examples]
    right = np.reshape(gold, (-1, 2)).argmax(1) == chosen
    assert result.metrics['accuracy/de'] == right.mean()
    assert result.metrics['chance/mean'] == 0.5


def test_long_texts_are_truncated_at_the_start(eval_model, choices):
  long = [
    dataclasses.replace(example, text=f'{example.text} ' * 9)
    for example in choices['xstory_cloze']
  ]
  task = pseudo_likelihood.LikelihoodChoice(
    source=one_hot_model.Held(parts=(('de', long),))
  )
  result = task.evaluate(eval_model)
  (note,) = result.notes
  assert '4 choices of de' in note
  counts = pseudo_likelihood.score_sentences(
    eval_model, [list(range(8, 60))], [0], starts=[50]
  )
  assert counts.sums[0, 2] == 2 and counts.cut == 1


def test_invalid_settings_are_rejected(corpus):
  source = text_sources.CorpusText(directory=corpus)
  with raises_error(
    errors.ConfigError, got='words', where='PseudoPerplexity.mask_unit'
  ):
    pseudo_likelihood.PseudoPerplexity(source=source, mask_unit='words')
