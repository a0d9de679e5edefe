"""Code-switched translate-train: both halves of a pair in other languages.

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
ENGLISH = 'en'  # the part of the originals


@class_registry.register('code_switched')
@dataclasses.dataclass(frozen=True, kw_only=True)
class CodeSwitched(ExampleSource):
  """Pairs of texts one of which is English, the other translated.

  An English example (a_en, b_en) and its translation (a_t, b_t), which has
  the same id, give (a_t, b_en) and (a_en, b_t), one after the other, and by
  default not (a_t, b_t) itself. The pairs are premise and hypothesis, or question and
  context; an answer is that of its context. The part of the translations into
  't' is 't', that of the English examples themselves their own.

  For both to be in one batch, let a `LabelledStream` read them with
  `group_size=2`.

  Before: `a man` / `he sleeps` in 'en', `un homme` / `il dort` in 'fr', id 7;
  after, part 'fr': `un homme` / `he sleeps` with the id '7:0', and `a man` /
  `il dort` with '7:1'.

  Attributes:
    english: the examples, with their originals as part 'en'.
    translations: the same examples in other languages.
    include_english: whether the originals are a part, too.
    include_translated: Whether the translated pair (a_t, b_t) follows the two
      code-switched ones, with the id '7:2'. The paper left it out, as it did
      not improve the scores (note 2). Use it with `group_size=3`.
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
    """The examples of a part.

    Raises:
      CorpusError: a translation's id is that of no original, an id is there
        twice, or labels differ.
      ConfigError: the examples are no pairs of texts.
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
        name = f'{translation.id}:2'
        examples.append(dataclasses.replace(translation, id=name))
    return examples


def by_id(
  examples: list[labeled_examples.Example], part: str
) -> dict[str, labeled_examples.Example]:
  """id -> example.

  Raises:
    CorpusError: an id is there twice.
  """
  examples_by_id = {example.id: example for example in examples}
  if len(examples_by_id) < len(examples):
    counts = collections.Counter(example.id for example in examples)
    twice = counts.most_common(1)[0][0]
    raise errors.CorpusError(
      'Two examples have one id, so translations cannot be told apart',
      got=twice,
      where=f'part {part}',
    )
  return examples_by_id


def find_translation(
  example: labeled_examples.Example,
  known: Mapping[str, labeled_examples.Example],
  part: str,
  *,
  may_be_blind: bool = False,
) -> labeled_examples.Example:
  """The example with the same id.

  Args:
    example: whose counterpart is asked for.
    known: id -> example.
    part: for messages.
    may_be_blind: whether it may have no label where `example` has one.

  Raises:
    CorpusError: there is none, or it has another label.
  """
  translation = known.get(example.id)
  if translation is None:
    raise errors.CorpusError(
      'A translation has no original',
      got=f'id {example.id}',
      where=f'part {part}',
      expected='an id of the original examples',
      fix='give both files ids, or the same lines in the same order',
    )
  label = getattr(example, 'label', None)
  if label != getattr(translation, 'label', None) and not (
    may_be_blind and translation.is_blind
  ):
    raise errors.CorpusError(
      'A translation has another label than its original',
      got=f'{label!r} and {getattr(translation, "label", None)!r}',
      where=f'part {part}, id {example.id}',
      fix='check that the files have the same examples in the same order',
    )
  return translation


def switch_halves(
  original: labeled_examples.Example, translation: labeled_examples.Example
) -> tuple[labeled_examples.Example, labeled_examples.Example]:
  """(a_t, b_en) and (a_en, b_t).

  Raises:
    ConfigError: they are no pairs of texts.
  """
  names = (f'{original.id}:0', f'{original.id}:1')
  if isinstance(original, labeled_examples.Question) and isinstance(
    translation, labeled_examples.Question
  ):
    # Answers and title are the context's, which is the first language.
    return (
      _question(translation, original, names[0]),
      _question(original, translation, names[1]),
    )
  if (
    isinstance(original, labeled_examples.ClassifiedText)
    and isinstance(translation, labeled_examples.ClassifiedText)
    and original.paired_text is not None
    and translation.paired_text is not None
  ):
    return (
      _pair(translation, original, names[0]),
      _pair(original, translation, names[1]),
    )
  raise errors.ConfigError(
    'Code-switched examples are of pairs of texts',
    got=original.KIND,
    expected='premise and hypothesis, or question and context',
    where=f'example {original.id}',
  )


def _question(
  asked: labeled_examples.Question,
  answered: labeled_examples.Question,
  name: str,
) -> labeled_examples.Question:
  """The question of one, the context of the other."""
  return dataclasses.replace(
    answered,
    id=name,
    question=asked.question,
    question_language=asked.question_language or asked.language,
  )


def _pair(
  first: labeled_examples.ClassifiedText,
  second: labeled_examples.ClassifiedText,
  name: str,
) -> labeled_examples.ClassifiedText:
  """The first text of one, the second of the other."""
  return dataclasses.replace(
    first,
    id=name,
    paired_text=second.paired_text,
    paired_language=second.paired_language or second.language,
  )
