import dataclasses

import numpy as np
import pytest

from tests.errors import raises_error
from xlflax.data.supervised import (
  labeled_examples,
  supervised_dataset,
  supervised_loader,
)
from xlflax.data.supervised.featurizers import (
  featurizer,
  question_featurizer,
  translation_featurizer,
)
from xlflax.data.supervised.sources import (
  code_switched_source,
  concatenated_source,
  example_source,
)
from xlflax.data.tokenizers.vocabulary_spec import VocabularySpec
from xlflax.utils import errors


@dataclasses.dataclass(frozen=True)
class InMemoryExamples(example_source.ExampleSource):
  """Examples in memory."""

  parts: dict

  def languages(self):
    return tuple(self.parts)

  def load(self, part):
    return list(self.parts[part])


def make_pair(name, language, text, paired, label='yes'):
  return labeled_examples.ClassifiedText(
    id=name, language=language, text=text, paired_text=paired, label=label
  )


ENGLISH = InMemoryExamples(
  {
    'en': [
      make_pair('7', 'en', 'a man', 'he sleeps'),
      make_pair('8', 'en', 'a dog', 'it runs', 'no'),
    ]
  }
)
FRENCH = InMemoryExamples(
  {
    'fr': [
      make_pair('8', 'fr', 'un chien', 'il court', 'no'),
      make_pair('7', 'fr', 'un homme', 'il dort'),
    ]
  }
)


def make_source(**fields):
  return code_switched_source.CodeSwitched(
    **(dict(english=ENGLISH, translations=FRENCH) | fields)
  )


def test_include_translated_appends_the_translated_pair():
  """See note 2 of the PPA paper."""
  examples = make_source(include_translated=True).load('fr')
  assert [example.id for example in examples[3:]] == ['7:0', '7:1', '7:2']
  assert examples[5] == dataclasses.replace(FRENCH.parts['fr'][1], id='7:2')
  assert examples[3:5] == make_source().load('fr')[2:]


def test_code_switched_pairs_docstring_example():
  source = make_source()
  assert source.languages() == ('en', 'fr')
  assert source.load('en') == ENGLISH.parts['en']
  assert source.load('fr')[2:] == [
    labeled_examples.ClassifiedText(
      id='7:0',
      language='fr',
      text='un homme',
      paired_text='he sleeps',
      paired_language='en',
      label='yes',
    ),
    labeled_examples.ClassifiedText(
      id='7:1',
      language='en',
      text='a man',
      paired_text='il dort',
      paired_language='fr',
      label='yes',
    ),
  ]


def test_describe_lists_the_files_of_both_sources():
  english, translations = (
    example_source.FileDataset(
      format='tsv', files={language: f'{language}.tsv'}
    )
    for language in ('en', 'fr')
  )
  source = make_source(english=english, translations=translations)
  assert source.describe('en') == 'en.tsv'
  assert source.describe('fr') == 'en.tsv, fr.tsv'


def test_include_english_false_omits_english():
  source = make_source(include_english=False)
  assert source.languages() == ('fr',)
  texts = {(e.text, e.paired_text) for e in source.load('fr')}
  assert ('un homme', 'il dort') not in texts
  assert len(texts) == 4


def test_switched_questions_keep_the_answers_of_their_context():
  question = labeled_examples.Question(
    id='1',
    language='en',
    question='who?',
    context='It was Ada.',
    answers=(labeled_examples.Answer('Ada', 7),),
  )
  translated = labeled_examples.Question(
    id='1',
    language='fr',
    question='qui ?',
    context="C'était Ada.",
    answers=(labeled_examples.Answer('Ada', 8),),
  )
  first, second = code_switched_source.switch_halves(question, translated)
  assert (first.question, first.question_language) == ('qui ?', 'fr')
  assert (first.context, first.language, first.answers[0].start) == (
    'It was Ada.',
    'en',
    7,
  )
  assert (second.question, second.question_language) == ('who?', 'en')
  assert (second.context, second.language, second.answers[0].start) == (
    "C'était Ada.",
    'fr',
    8,
  )


@pytest.mark.parametrize(
  'translation, values',
  [
    (make_pair('9', 'fr', 'x', 'y'), ('id', 9, "'fr'")),
    (make_pair('7', 'fr', 'x', 'y', 'no'), ('no', 'yes', 'fr', 'id')),
  ],
)
def test_mismatched_translations_are_rejected(translation, values):
  source = make_source(translations=InMemoryExamples({'fr': [translation]}))
  with raises_error(errors.CorpusError, mentions=values):
    source.load('fr')


def test_duplicate_ids_are_rejected():
  english = InMemoryExamples({'en': ENGLISH.parts['en'] * 2})
  with raises_error(errors.CorpusError, got=7, mentions=("'en'", 'id')):
    make_source(english=english).load('fr')


def test_single_texts_are_rejected():
  example = labeled_examples.ClassifiedText(
    id='1', language='en', text='a', label='x'
  )
  with raises_error(errors.ConfigError, got='classification', mentions="'1'"):
    code_switched_source.switch_halves(example, example)


def test_concatenated_sources_require_distinct_languages():
  source = concatenated_source.ConcatDataset(sources=(ENGLISH, FRENCH))
  assert source.languages() == ('en', 'fr')
  assert source.load('fr') == FRENCH.parts['fr']
  with raises_error(
    errors.ConfigError, got='en', where='ConcatDataset.sources'
  ):
    concatenated_source.ConcatDataset(sources=(ENGLISH, ENGLISH)).languages()


# Token ids are derived from the positions of letters in the alphabet.

SPEC = VocabularySpec(
  size=40,
  pad_id=0,
  bos_id=1,
  eos_id=2,
  unk_id=3,
  mask_id=4,
  special_ids=(0, 1, 2, 3, 4),
  languages=('en', 'fr'),
)


class Vocabulary:
  spec = SPEC
  hash = 'abc'
  needs_language = False

  def language_id(self, code):
    return SPEC.languages.index(code)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Letters(featurizer.Featurizer):
  """Featurizer with one row per word of the first text and the id as label."""

  def fields(self, length, spec):
    return featurizer.text_fields(length, spec) | {
      'labels': featurizer.Field((), -1)
    }

  def texts(self, examples, vocabulary, *, length):
    return self.make(examples, vocabulary, length=length)

  def make(self, examples, vocabulary, *, length):
    return [
      [
        featurizer.text_row(
          [np.array([ord(c) - 87 for c in word if c.isalpha()])],
          [vocabulary.language_id(example.language)],
          SPEC,
        )
        | {'labels': int(example.id.split(':')[0])}
        for word in example.text.split()
      ]
      for example in examples
    ]


def test_rows_are_paired_with_their_translation():
  maker = translation_featurizer.TranslationPairFeaturizer(
    featurizer=Letters(),
    translations=translation_featurizer.TranslationPairs(
      english=ENGLISH, translations=FRENCH
    ),
  )
  dog, man = maker.make(FRENCH.parts['fr'], Vocabulary(), length=9)
  assert len(dog) == 2 and man[1]['labels'] == 7
  # 'homme' is aligned with 'man', and 'un' with 'a'.
  assert man[1]['token_ids'].tolist() == [1, 17, 24, 22, 22, 14, 2]
  assert man[1]['paired_token_ids'].tolist() == [1, 22, 10, 23, 2]
  assert man[0]['paired_token_ids'].tolist() == [1, 10, 2]
  assert set(man[0]['language_ids']) == {1}
  assert set(man[0]['paired_language_ids']) == {0}
  (features,) = maker.make(ENGLISH.parts['en'][:1], Vocabulary(), length=9)
  assert (
    features[1]['paired_token_ids'].tolist()
    == features[1]['token_ids'].tolist()
  )
  fields = maker.fields(9, SPEC)
  assert fields['paired_token_ids'] == fields['token_ids']
  assert 'paired_labels' not in fields


def test_windows_are_paired_by_relative_position():
  context = 'a b c d e'
  maker = translation_featurizer.TranslationPairFeaturizer(
    featurizer=Letters(),
    translations=translation_featurizer.TranslationPairs(
      english=InMemoryExamples({'en': [make_pair('7', 'en', context, 'x')]}),
      translations=InMemoryExamples(
        {'fr': [make_pair('7', 'fr', 'x y z', 'x')]}
      ),
    ),
  )
  (rows,) = maker.make(
    [make_pair('7', 'fr', 'x y z', 'x')], Vocabulary(), length=9
  )
  first = [row['paired_token_ids'].tolist()[1] for row in rows]
  assert first == [ord(word) - 87 for word in 'ace']


def test_dropped_windows_are_rejected():
  with raises_error(
    errors.ConfigError,
    where='TranslationPairFeaturizer.featurizer',
    mentions='QuestionAnsweringFeaturizer',
  ):
    translation_featurizer.TranslationPairFeaturizer(
      featurizer=question_featurizer.QuestionAnsweringFeaturizer(
        no_answer='drop'
      ),
      translations=ENGLISH,
    )


def test_english_is_paired_with_the_given_language():
  maker = translation_featurizer.TranslationPairFeaturizer(
    featurizer=Letters(),
    translations=translation_featurizer.TranslationPairs(
      english=ENGLISH, translations=FRENCH, paired_with='fr'
    ),
  )
  row = maker.make(ENGLISH.parts['en'][:1], Vocabulary(), length=9)[0][1]
  assert row['paired_token_ids'].tolist() == [1, 17, 24, 22, 22, 14, 2]


def make_switched(count: int):
  """Returns a source of `count` pairs; every second one has two English words."""

  def pairs(language, more):
    return [
      make_pair(str(i), language, f'{language} {more * (i % 2)}'.strip(), 'x')
      for i in range(count)
    ]

  return make_source(
    english=InMemoryExamples({'en': pairs('en', 'b')}),
    translations=InMemoryExamples({'fr': pairs('fr', '')}),
    include_english=False,
  )


@pytest.mark.parametrize('batch_size', [2, 6])
def test_switched_pairs_are_in_the_same_batch(batch_size):
  dataset = supervised_dataset.LabeledDatasetConfig(
    name='s',
    source=make_switched(9),
    featurizer=Letters(),
    length=9,
    batch_size=batch_size,
    group_size=2,
  )
  loader = supervised_loader.LabeledLoader(
    dataset, vocabulary=Vocabulary(), seed=3
  )
  # Of 9 pairs, 4 have two rows on one side. The missing row is repeated.
  assert loader.num_rows == 2 * (5 + 2 * 4)
  batch_ids = []
  for step in range(26 // batch_size):
    batch = loader.rows(step, 0, batch_size)
    labels = batch['labels'].reshape(-1, 2)
    languages = batch['language_ids'][:, 0].reshape(-1, 2)
    np.testing.assert_array_equal(labels[:, 0], labels[:, 1])
    np.testing.assert_array_equal(languages.sum(1), 1)  # one row of each side
    batch_ids += labels[:, 0].tolist()
  if batch_size == 2:  # One epoch contains each row once, in another order.
    assert sorted(batch_ids) == sorted([*range(9), *range(1, 9, 2)])
    assert batch_ids != sorted(batch_ids)


def test_slices_equal_the_complete_batch():
  dataset = supervised_dataset.LabeledDatasetConfig(
    name='s',
    source=make_switched(5),
    featurizer=Letters(),
    length=9,
    batch_size=4,
    group_size=2,
  )
  loader = supervised_loader.LabeledLoader(
    dataset, vocabulary=Vocabulary(), seed=3
  )
  full_batch = loader.rows(2, 0, 4)
  for start, stop in ((0, 1), (1, 4), (3, 4)):
    for key, value in loader.rows(2, start, stop).items():
      np.testing.assert_array_equal(value, full_batch[key][start:stop])


def test_batch_size_must_be_divisible_by_group_size():
  with raises_error(
    errors.ConfigError, mentions=('batch_size', 5, 'group_size', 2, "'s'")
  ):
    supervised_dataset.LabeledDatasetConfig(
      name='s',
      source=make_switched(5),
      featurizer=Letters(),
      length=9,
      batch_size=5,
      group_size=2,
    )


def test_translated_test_sets_have_the_language_english():
  source = concatenated_source.TranslatedDataset(
    source=InMemoryExamples(
      {
        'fr': [
          dataclasses.replace(
            make_pair('7', 'fr', 'a man', 'he sleeps'), paired_language='fr'
          )
        ]
      }
    )
  )
  assert source.languages() == ('fr',)
  assert source.load('fr') == [make_pair('7', 'en', 'a man', 'he sleeps')]


def test_find_translation_compares_labels_unless_blind():
  example = make_pair('7', 'fr', 'un', 'deux')
  blind = {'7': make_pair('7', 'en', 'one', 'two', label=None)}
  with raises_error(errors.CorpusError, mentions=('yes', 'en', 'id', 7)):
    code_switched_source.find_translation(example, blind, 'en')
  translation = code_switched_source.find_translation(
    example, blind, 'en', may_be_blind=True
  )
  assert translation.text == 'one'
