"""Source of text pairs that combine an English text with a translated text.

Source: Pan et al. (2021), "Multilingual BERT Post-Pretraining Alignment",
section 2.3.
"""

import collections
import dataclasses
from collections.abc import Mapping

from xlflax.data.supervised import labeled_examples
from xlflax.data.supervised.sources import example_source
from xlflax.utils import class_registry, errors

ExampleSource = example_source.ExampleSource
ENGLISH = 'en'  # Part with the original examples.


@class_registry.register('code_switched')
@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeSwitched(ExampleSource):
  """Source of text pairs in which one text is English and one is translated.

  An English example (a_en, b_en) and its translation (a_t, b_t) with the same
  id give the consecutive examples (a_t, b_en) and (a_en, b_t). By default, the
  translated pair (a_t, b_t) is not included. A pair consists of a premise and a
  hypothesis, or of a question and a context. The answer to a question is taken
  from the example that provides the context. The language split 't' contains
  the pairs with a text in the language t, and the split 'en' contains the
  English examples.

  To put both code-switched examples into one batch, set `group_size=2` in the
  `LabeledDatasetConfig`.

  For example, `a man` / `he sleeps` in 'en' and `un homme` / `il dort` in 'fr',
  both with id 7, give the language split 'fr' with `un homme` / `he sleeps`, id
  '7:0', and `a man` / `il dort`, id '7:1'.

  Attributes:
    english: Source whose language split 'en' contains the English examples.
    translations: Source of the same examples translated into other languages.
    include_english: Whether to include the English examples as the language
      split 'en'.
    include_translated: Whether to add the translated pair (a_t, b_t) after the
      two code-switched examples, with an id such as '7:2'. To put all three
      examples into one batch, set `group_size=3` in the `LabeledDatasetConfig`.
      The paper omits this pair because it did not improve the scores (note 2).
  """

  english: ExampleSource
  translations: ExampleSource
  include_english: bool = True
  include_translated: bool = False

  def languages(self) -> tuple[str, ...]:
    english = (ENGLISH,) if self.include_english else ()
    return (
      *english,
      *(part for part in self.translations.languages() if part != ENGLISH),
    )

  def load(self, part: str) -> list[labeled_examples.Example]:
    """Returns the code-switched examples of a language split.

    Raises:
      CorpusError: If a translation has no original with the same id, if an id
        is repeated, or if the labels of an example and its translation differ.
      ConfigError: If the examples are not text pairs.
    """
    originals = self.english.load(ENGLISH)
    if part == ENGLISH:
      return list(originals)
    originals_by_id = by_id(originals, ENGLISH)
    examples: list[labeled_examples.Example] = []
    for translation in self.translations.load(part):
      original = find_translation(translation, originals_by_id, part)
      examples.extend(switch_halves(original, translation))
      if self.include_translated:
        translated_id = f'{translation.id}:2'
        examples.append(dataclasses.replace(translation, id=translated_id))
    return examples

  def describe(self, part: str) -> str:
    if part == ENGLISH:
      return self.english.describe(ENGLISH)
    sources = self.english.describe(ENGLISH), self.translations.describe(part)
    return ', '.join(sources)


def by_id(
  examples: list[labeled_examples.Example], part: str
) -> dict[str, labeled_examples.Example]:
  """Returns the examples by id, after checking that the ids are unique.

  Args:
    examples: Examples of one language split.
    part: Name of the language split, for error messages.

  Raises:
    CorpusError: If two examples have the same id.
  """
  examples_by_id = {example.id: example for example in examples}
  if len(examples_by_id) < len(examples):
    counts = collections.Counter(example.id for example in examples)
    repeated_id = counts.most_common(1)[0][0]
    raise errors.CorpusError(
      f'The ids of the examples in the language split {part!r} must be '
      'unique, because translations are matched with their originals by id',
      got=repeated_id,
    )
  return examples_by_id


def find_translation(
  example: labeled_examples.Example,
  candidates: Mapping[str, labeled_examples.Example],
  part: str,
  *,
  may_be_blind: bool = False,
) -> labeled_examples.Example:
  """Returns the translation that has the same id as an example.

  Args:
    example: Example whose translation is returned.
    candidates: Translated examples, by id.
    part: Name of the language split, for error messages.
    may_be_blind: Whether to accept a translation without a label if `example`
      has a label.

  Raises:
    CorpusError: If the example has no translation, or if the label of the
      translation differs from the label of `example`.
  """
  translation = candidates.get(example.id)
  if translation is None:
    raise errors.CorpusError(
      f'The example with the id {example.id!r} in the language split {part!r} '
      'must exist in both the original and the translated file',
      got=example.id,
      fix='Add ids to both files, or use files with the same lines in the '
      'same order.',
    )
  label = getattr(example, 'label', None)
  if label != getattr(translation, 'label', None) and not (
    may_be_blind and translation.is_blind
  ):
    raise errors.CorpusError(
      'A translation must have the same label as its original',
      got=f'{label!r} and {getattr(translation, "label", None)!r}',
      where=f'example with the id {example.id!r} in the language split '
      f'{part!r}',
      fix='Check that the file of the originals and the file of the '
      'translations contain the same examples in the same order. In files '
      'without ids, the id of an example is its line number.',
    )
  return translation


def switch_halves(
  original: labeled_examples.Example, translation: labeled_examples.Example
) -> tuple[labeled_examples.Example, labeled_examples.Example]:
  """Creates two text pairs, each with one original and one translated text.

  The original is the pair (a_en, b_en), and the translation is (a_t, b_t). The
  results are (a_t, b_en) and (a_en, b_t).

  Raises:
    ConfigError: If the examples are not text pairs.
  """
  ids = (f'{original.id}:0', f'{original.id}:1')
  if isinstance(original, labeled_examples.Question) and isinstance(
    translation, labeled_examples.Question
  ):
    # `language` is that of the context, to which the answers and the title
    # belong.
    return (
      _combine_questions(translation, original, ids[0]),
      _combine_questions(original, translation, ids[1]),
    )
  if (
    isinstance(original, labeled_examples.ClassifiedText)
    and isinstance(translation, labeled_examples.ClassifiedText)
    and original.paired_text is not None
    and translation.paired_text is not None
  ):
    return (
      _combine_texts(translation, original, ids[0]),
      _combine_texts(original, translation, ids[1]),
    )
  raise errors.ConfigError(
    f'The example {original.id!r} cannot be code-switched. It must have a '
    'premise and a hypothesis, or a question and a context',
    got=original.KIND,
  )


def _combine_questions(
  question_example: labeled_examples.Question,
  context_example: labeled_examples.Question,
  new_id: str,
) -> labeled_examples.Question:
  """Combines an example's question with the context of its translation."""
  return dataclasses.replace(
    context_example,
    id=new_id,
    question=question_example.question,
    question_language=question_example.question_language
    or question_example.language,
  )


def _combine_texts(
  first: labeled_examples.ClassifiedText,
  second: labeled_examples.ClassifiedText,
  new_id: str,
) -> labeled_examples.ClassifiedText:
  """Combines an example's first text with its translation's second text."""
  return dataclasses.replace(
    first,
    id=new_id,
    paired_text=second.paired_text,
    paired_language=second.paired_language or second.language,
  )
