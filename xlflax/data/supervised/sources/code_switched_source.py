"""Code-switched training data: text pairs in two languages.

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
  """Text pairs with one English and one translated text.

  An English example (a_en, b_en) and its translation (a_t, b_t) with the same
  id give the consecutive examples (a_t, b_en) and (a_en, b_t). By default, the
  translated pair (a_t, b_t) is not included. A pair consists of premise and
  hypothesis, or of question and context. The answer is that of the context. The
  part 't' contains the examples with translations into 't', and the part 'en'
  contains the English examples.

  To put both into one batch, set `group_size=2` in the `LabeledDatasetConfig`.

  For example, `a man` / `he sleeps` in 'en' and `un homme` / `il dort` in 'fr',
  both with id 7, give the part 'fr' with `un homme` / `he sleeps`, id '7:0',
  and `a man` / `il dort`, id '7:1'.

  Attributes:
    english: Source of the original examples, in its part 'en'.
    translations: Source of the same examples in other languages.
    include_english: Whether to include the original examples as a part.
    include_translated: Whether to add the translated pair (a_t, b_t), with the
      id '7:2', after the two code-switched examples. The paper omits it because
      it did not improve the scores (note 2). Use it with `group_size=3`.
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
    """Returns the examples of a part.

    Raises:
      CorpusError: If the id of a translation is not that of an original, if an
        id is repeated, or if labels differ.
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


def by_id(
  examples: list[labeled_examples.Example], part: str
) -> dict[str, labeled_examples.Example]:
  """Returns the examples by id.

  Args:
    examples: Examples of a part.
    part: Name of the part, for error messages.

  Raises:
    CorpusError: If an id is repeated.
  """
  examples_by_id = {example.id: example for example in examples}
  if len(examples_by_id) < len(examples):
    counts = collections.Counter(example.id for example in examples)
    repeated_id = counts.most_common(1)[0][0]
    raise errors.CorpusError(
      'Two examples have the same id, so translations cannot be matched.',
      got=repeated_id,
      where=f'part {part}',
    )
  return examples_by_id


def find_translation(
  example: labeled_examples.Example,
  candidates: Mapping[str, labeled_examples.Example],
  part: str,
  *,
  may_be_blind: bool = False,
) -> labeled_examples.Example:
  """Returns the example with the same id in another language.

  Args:
    example: Example to match.
    candidates: Examples by id.
    part: Name of the part, for error messages.
    may_be_blind: Whether to accept an example without a label if `example` has
      one.

  Raises:
    CorpusError: If there is no such example, or if it has another label.
  """
  translation = candidates.get(example.id)
  if translation is None:
    raise errors.CorpusError(
      'A translation has no original.',
      got=f'id {example.id}',
      where=f'part {part}',
      expected='an id of the original examples',
      fix='Add ids to both files, or use files with the same lines in the same '
      'order.',
    )
  label = getattr(example, 'label', None)
  if label != getattr(translation, 'label', None) and not (
    may_be_blind and translation.is_blind
  ):
    raise errors.CorpusError(
      'The label of a translation differs from that of its original.',
      got=f'{label!r} and {getattr(translation, "label", None)!r}',
      where=f'part {part}, id {example.id}',
      fix='Check that the files contain the same examples in the same order.',
    )
  return translation


def switch_halves(
  original: labeled_examples.Example, translation: labeled_examples.Example
) -> tuple[labeled_examples.Example, labeled_examples.Example]:
  """Returns the code-switched examples (a_t, b_en) and (a_en, b_t).

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
    'Code-switching requires examples with two texts.',
    got=original.KIND,
    expected='premise and hypothesis, or question and context',
    where=f'example {original.id}',
  )


def _combine_questions(
  question_example: labeled_examples.Question,
  context_example: labeled_examples.Question,
  new_id: str,
) -> labeled_examples.Question:
  """Combines the question of one example with the context of another."""
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
  """Combines the first text of one example with the second of another."""
  return dataclasses.replace(
    first,
    id=new_id,
    paired_text=second.paired_text,
    paired_language=second.paired_language or second.language,
  )
