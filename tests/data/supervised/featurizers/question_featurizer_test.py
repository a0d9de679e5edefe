"""Tests of the question-answering featurizer: windows and answer positions."""

import logging

import numpy as np
import pytest

from tests.errors import assert_mentions, raises_error
from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.featurizers import featurizer, question_featurizer
from xlflax.data.tokenizers import base_vocabulary
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import errors


class Letters(base_vocabulary.Vocabulary):
  """Vocabulary of characters without spaces; `ab` and `▁` are tokens, too."""

  kind = 'letters'
  hash = 'letters'
  spec = VocabularySpec(
    size=0x30000,
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    mask_id=4,
    special_ids=(0, 1, 2, 3, 4),
    languages=('en', 'de'),
  )

  def encode_batch(self, texts, *, language=None, num_threads=1):
    return [
      [ord(c) for c in text.replace('ab', '\ue000') if not c.isspace()]
      for text in texts
    ]

  def bare_piece(self, index, *, language=None):
    return {0xE000: 'ab'}.get(index, chr(index))

  def piece_id(self, piece, *, language=None):
    return None


def _question(context, answer, *, question='xy', start=None, **more):
  answer_start = context.index(answer) if start is None else start
  return labeled_examples.Question(
    **{
      'id': 'q',
      'language': 'en',
      'question': question,
      'context': context,
      'answers': (labeled_examples.Answer(answer, answer_start),),
      **more,
    }
  )


def _ids(text):
  return [{'<': 1, '>': 2}.get(c, ord(c)) for c in text]


def test_docstring_example():
  maker = question_featurizer.QuestionAnsweringFeaturizer(doc_stride=2)
  ((first, second),) = maker.make(
    [_question('c d e f', 'd')], Letters(), length=9
  )
  assert first['token_ids'].tolist() == _ids('<xy>>cde>')
  assert first['context_mask'].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0]
  assert (first['start_positions'], first['end_positions']) == (6, 6)
  assert second['token_ids'].tolist() == _ids('<xy>>ef>')
  assert (second['start_positions'], second['end_positions']) == (0, 0)
  assert first['side_ids'].tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]


def test_windows_without_the_answer_can_be_dropped():
  maker = question_featurizer.QuestionAnsweringFeaturizer(
    doc_stride=2, no_answer='drop'
  )
  (rows,) = maker.make([_question('c d e f', 'd')], Letters(), length=9)
  assert len(rows) == 1 and rows[0]['start_positions'] == 6


@pytest.mark.parametrize('separator', ['bert', 'xlmr', 'xlm'])
@pytest.mark.parametrize(('length', 'stride'), [(9, 1), (9, 128), (30, 4)])
def test_windows_cover_the_complete_context(separator, length, stride):
  maker = question_featurizer.QuestionAnsweringFeaturizer(
    doc_stride=stride, separator=separator
  )
  context = 'qwertyuiop asdf'
  (windows,) = maker.windows(
    [_question(context, 'q')], Letters(), length=length
  )
  covered = set()
  for window in windows:
    positions = np.flatnonzero(window.row['context_mask'])
    assert positions.tolist() == list(
      range(window.offset, window.offset + window.num_tokens)
    )
    tokens = window.row['token_ids'][positions].tolist()
    assert (
      tokens
      == window.spans.token_ids[
        window.first : window.first + window.num_tokens
      ].tolist()
    )
    assert len(window.row['token_ids']) <= length
    covered.update(range(window.first, window.first + window.num_tokens))
  assert covered == set(range(14))
  assert len({w.first for w in windows}) == len(windows)


def test_answers_cut_by_a_window_are_treated_as_missing():
  maker = question_featurizer.QuestionAnsweringFeaturizer(doc_stride=2)
  (rows,) = maker.make([_question('cdef', 'def')], Letters(), length=9)
  assert [int(row['start_positions']) for row in rows] == [0, 0]


def test_answer_ends_inside_a_token_include_the_token():
  (window,) = question_featurizer.QuestionAnsweringFeaturizer().windows(
    [_question('cabd', 'b')], Letters(), length=20
  )[0]
  start, end = window.positions(2, 3)
  assert start == end
  assert window.characters(start, end) == (1, 3)


def test_answers_missing_from_the_context_are_logged_and_skipped(caplog):
  good = _question('c d', 'd')
  wrong = _question('c d', 'd', start=0, id='w1')
  nowhere = _question('c d', 'x', start=-1, id='w2')
  blind = _question('c d', 'd', answers=(), id='blind')
  with caplog.at_level(logging.WARNING):
    features = question_featurizer.QuestionAnsweringFeaturizer().make(
      [good, wrong, nowhere, blind], Letters(), length=12
    )
  assert [len(rows) for rows in features] == [1, 0, 0, 0]
  assert_mentions(caplog.text, 2)
  assert_mentions(caplog.text, 'w1', 'w2')
  assert question_featurizer.find_answer_mismatches(
    [good, wrong, nowhere, blind]
  ) == ['w1', 'w2']


def test_only_the_first_answer_must_match_the_context(caplog):
  """A question with a wrong second answer is not skipped."""
  answers = (labeled_examples.Answer('d', 2), labeled_examples.Answer('d', 0))
  example = _question('c d', 'd', answers=answers)
  with caplog.at_level(logging.WARNING):
    (rows,) = question_featurizer.QuestionAnsweringFeaturizer().make(
      [example], Letters(), length=12
    )
  assert len(rows) == 1 and not caplog.records


def test_invalid_settings_are_rejected():
  with raises_error(
    errors.ConfigError, got=0, where='QuestionAnsweringFeaturizer.doc_stride'
  ):
    question_featurizer.QuestionAnsweringFeaturizer(doc_stride=0)
  with raises_error(
    errors.ConfigError,
    got='keep',
    where='QuestionAnsweringFeaturizer.no_answer',
  ):
    question_featurizer.QuestionAnsweringFeaturizer(no_answer='keep')
  with raises_error(errors.ConfigError, mentions=(6, 2, 4)):
    question_featurizer.QuestionAnsweringFeaturizer().windows(
      [_question('c', 'c')], Letters(), length=6
    )


def test_long_questions_are_truncated_and_keep_their_language():
  (window,) = question_featurizer.QuestionAnsweringFeaturizer(
    max_question_length=3
  ).windows(
    [_question('c d', 'c', question='qwert', question_language='de')],
    Letters(),
    length=12,
  )[0]
  assert window.row['token_ids'].tolist() == _ids('<qwe>>cd>')
  assert window.row['language_ids'].tolist() == [1] * 5 + [0] * 4
  assert question_featurizer.QuestionAnsweringFeaturizer().windows(
    [_question(' ', '', answers=())], Letters(), length=12
  ) == [[]]


_CONTEXTS = {
  'en': 'The river (1,234 km) rises in 2021; its "old name" was Aa-Bé.',
  'de': 'Die Brücke, „groß“ genannt, steht seit 1903 über dem Fluß.',
  'ru': 'Река длиной 1234 км начинается в горах (2021 г.).',
  'zh': '这条河长1234公里，发源于“北山”。河上有桥。',
  'ja': '川の長さは１２３４ｋｍで、ｶﾞ山から始まる（二〇二一年）。',
  'ar': 'يبلغ طول النهر ١٢٣٤ كم، وينبع من الجبال.',
  'th': 'แม่น้ำยาว ๑๒๓๔ กม. เริ่มจากภูเขา',
  'hi': 'नदी की लंबाई १२३४ किमी है, पहाड़ से निकलती है।',
  'ko': '강의 길이는 1234킬로미터이며 산에서 시작한다.',
  'vi': 'Sông dài 1234 km, bắt nguồn từ núi cũ.',
}


@pytest.mark.parametrize('language', list(_CONTEXTS))
def test_answer_spans_decode_to_the_exact_text(language, vocabularies):
  """Every token span is used as the answer."""
  context = _CONTEXTS[language]
  exact = 0
  for vocabulary in vocabularies:
    maker = question_featurizer.QuestionAnsweringFeaturizer(
      doc_stride=4, no_answer='drop'
    )
    window = maker.windows(
      [_question(context, context[0])], vocabulary, length=400
    )[0][0]
    starts = sorted(set(window.spans.starts.tolist()))
    ends = sorted(set(window.spans.ends.tolist()))
    rng = np.random.default_rng(0)
    chosen = [(a, b) for a in starts for b in ends if a < b]
    chosen = [chosen[i] for i in rng.permutation(len(chosen))[:60]]
    questions = [
      _question(context, context[a:b], start=a, id=str(i))
      for i, (a, b) in enumerate(chosen)
    ]
    for example, rows, windows in zip(
      questions,
      maker.make(questions, vocabulary, length=40),
      maker.windows(questions, vocabulary, length=40),
      strict=True,
    ):
      answer = example.answers[0]
      held = [
        w
        for w in windows
        if w.positions(answer.start, answer.start + len(answer.text))
      ]
      assert len(rows) == len(held)
      for row, window in zip(rows, held, strict=True):
        start, end = window.characters(
          int(row['start_positions']), int(row['end_positions'])
        )
        assert context[start:end].strip() == answer.text.strip()
        exact += 1
  assert exact > 100


@pytest.fixture(scope='module')
def vocabularies(toy_vocabulary, tmp_path_factory):
  """Byte-level BPE, Unigram and WordPiece of many scripts, and the toy one."""
  from tests.interop.huggingface.tokenizers import tokenizer_reader_test
  from xlflax.interop.huggingface.tokenizers import tokenizer_reader as importer

  all_vocabularies = [toy_vocabulary]
  for kind in ('bert', 'roberta', 'xlm-roberta'):
    model_type, make = tokenizer_reader_test._KINDS[kind]
    folder = tmp_path_factory.mktemp(kind)
    make(folder).save_pretrained(folder / 'saved')
    all_vocabularies.append(
      importer.read_tokenizer(
        folder / 'saved',
        model_type=model_type,
        size=None,
        languages=('en', 'de'),
      )
    )
  return all_vocabularies


def test_features_match_the_declared_fields():
  maker = question_featurizer.QuestionAnsweringFeaturizer(doc_stride=2)
  (rows,) = maker.make([_question('c d e f', 'd')], Letters(), length=9)
  batch = featurizer.stack_features(rows, maker.fields(9, Letters.spec))
  assert batch['context_mask'].tolist() == [
    [0, 0, 0, 0, 0, 1, 1, 1, 0],
    [0, 0, 0, 0, 0, 1, 1, 0, 0],
  ]
  assert batch['start_positions'].tolist() == [6, 0]


def test_unanswerable_questions_point_to_the_first_position():
  example = labeled_examples.Question(
    id='q',
    language='en',
    question='xy',
    context='ab cd ef',
    answers=(labeled_examples.UNANSWERABLE,),
  )
  (rows,) = question_featurizer.QuestionAnsweringFeaturizer(doc_stride=2).make(
    [example], Letters(), length=10
  )
  assert len(rows) > 1
  assert {int(r['start_positions']) for r in rows} == {0}
  assert {int(r['end_positions']) for r in rows} == {0}
  assert question_featurizer.find_answer_mismatches([example]) == []
