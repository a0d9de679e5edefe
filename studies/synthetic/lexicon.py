"""Words of the synthetic languages: stems, shared words and affixes."""

import dataclasses
from collections.abc import Sequence

from studies.synthetic import concepts, scripts
from studies.synthetic.random_generator import RandomGenerator
from studies.synthetic.typology import Language, Morphology
from xlflax.utils import errors

# Combinations of marks that the forms of a word can have.
_VERB_MARKS = (
  ('past',),
  ('future',),
  ('plural_verb',),
  ('past', 'plural_verb'),
  ('future', 'plural_verb'),
)
_NOUN_MARKS = (('plural',), ('object',), ('plural', 'object'))
_MARKS = {
  'VERB': _VERB_MARKS,
  'AUX': _VERB_MARKS,
  'NOUN': _NOUN_MARKS,
  'ADJ': _NOUN_MARKS,
  'PROPN': _NOUN_MARKS,
  'PRON': _NOUN_MARKS,
}
AFFIXES = ('past', 'future', 'plural_verb', 'plural', 'object')
_MAX_ATTEMPTS = 10_000


@dataclasses.dataclass(frozen=True)
class Lexicon:
  """All words and affixes of a language.

  Attributes:
    language: Language of the words.
    stems: Map from concept to the uninflected word.
    affixes: Map from grammatical mark, such as 'plural', to affix (see
      `AFFIXES`). It is {} in an isolating language.
    anchors: Concepts whose word is shared by all languages. Shared words are
      not inflected, so that they are the same string in every sentence. Shared
      verbs mark tense with particles.
  """

  language: Language
  stems: dict[str, str]
  affixes: dict[str, str]
  anchors: frozenset[str]

  def inflects(self, concept: str) -> bool:
    """Returns whether the word for a concept takes affixes."""
    return bool(self.affixes) and concept not in self.anchors

  @property
  def has_particles(self) -> bool:
    """True if the language marks tense by particles."""
    return any(
      not self.inflects(concept.id)
      for concept in concepts.CONCEPTS.values()
      if concept.tag == 'VERB'
    )

  def form(self, concept: str, marks: Sequence[str] = ()) -> str:
    """Returns the word for a concept, with affixes.

    Args:
      concept: Concept of the word.
      marks: Grammatical marks of the word, such as 'plural'. The affixes are
        added in the order of `AFFIXES`, starting at the stem.
    """
    return _attach_affixes(
      self.stems[concept], marks, self.affixes, self.language
    )


def build_lexicons(
  languages: Sequence[Language], *, seed: int, anchors: float
) -> dict[str, Lexicon]:
  """Creates the lexicons of several languages, keyed by language code.

  Shared words are taken from the first language. Every other string is the word
  for one concept in one language. A language's words do not depend on the
  languages after it. The words shared with a smaller fraction are a subset of
  those shared with a larger fraction.

  Args:
    languages: Languages for which lexicons are built. They must be different.
    seed: Random seed.
    anchors: Fraction of concepts whose words are the same in all languages.
      Function words are excluded.

  Raises:
    ConfigError: If a script has too few different strings for the words of the
      languages that use it.
  """
  shared_concepts = _draw_shared_concepts(seed, anchors)
  used_forms: set[str] = set()
  lexicons: dict[str, Lexicon] = {}
  for language in languages:
    first = next(iter(lexicons.values()), None)
    lexicons[language.code] = _build_lexicon(
      language, first, seed, shared_concepts, used_forms
    )
  return lexicons


def _draw_shared_concepts(seed: int, fraction: float) -> frozenset[str]:
  """Draws a fraction of the concepts, excluding function words."""
  concept_ids = [
    concept.id
    for concept in concepts.CONCEPTS.values()
    if concepts.is_anchorable(concept)
  ]
  RandomGenerator(seed, 'anchors').shuffle(concept_ids)
  return frozenset(concept_ids[: round(fraction * len(concept_ids))])


def _build_lexicon(
  language: Language,
  first: Lexicon | None,
  seed: int,
  shared_concepts: frozenset[str],
  used_forms: set[str],
) -> Lexicon:
  """Returns the lexicon of a language.

  Args:
    language: Language of the words.
    first: Lexicon of the first language, from which shared words are copied. If
      None, the new lexicon is that of the first language.
    seed: Random seed.
    shared_concepts: Concepts whose words are the same in all languages.
    used_forms: Lowercase words of the previous languages. The new words are
      added to them.
  """
  rng = RandomGenerator(seed, 'lexicon', language.code, language.script.value)
  affixes = {}
  if language.morphology is not Morphology.ISOLATING:
    affixes = _draw_affixes(language, rng)
  lexicon = Lexicon(language, {}, affixes, shared_concepts)
  for concept in concepts.CONCEPTS.values():
    if first is not None and concept.id in shared_concepts:
      lexicon.stems[concept.id] = first.stems[concept.id]
    else:
      _add_word(concept, lexicon, rng, used_forms)
  return lexicon


def _draw_affixes(language: Language, rng: RandomGenerator) -> dict[str, str]:
  """Draws a different affix for each grammatical mark."""
  affixes: list[str] = []
  while len(affixes) < len(AFFIXES):
    affix = scripts.draw_affix(language.script, rng)
    if affix not in affixes:
      affixes.append(affix)
  return dict(zip(AFFIXES, affixes, strict=True))


def _add_word(
  concept: concepts.Concept,
  lexicon: Lexicon,
  rng: RandomGenerator,
  used_forms: set[str],
) -> None:
  """Adds a word to a lexicon, with forms that no other word has."""
  script = lexicon.language.script
  for _ in range(_MAX_ATTEMPTS):
    if concept.group == 'function':
      stem = scripts.draw_function_word(script, rng)
    else:
      stem = scripts.draw_content_word(script, rng)
    if concept.tag == 'PROPN' and scripts.LETTERS[script].has_case:
      stem = stem.capitalize()
    forms = {stem}
    if lexicon.inflects(concept.id):
      forms |= {
        _attach_affixes(stem, marks, lexicon.affixes, lexicon.language)
        for marks in _MARKS.get(concept.tag, ())
      }
    # Case is ignored, so that uncased vocabularies distinguish the words too.
    lowercase_forms = {form.lower() for form in forms}
    is_unambiguous = len(lowercase_forms) == len(forms)
    if is_unambiguous and not lowercase_forms & used_forms:
      used_forms |= lowercase_forms
      lexicon.stems[concept.id] = stem
      return
  raise errors.ConfigError(
    'Too many synthetic languages use the same script. The generator cannot '
    'create enough different words for them',
    got=lexicon.language.code,
    expected='Fewer languages must use the same script',
    where='synthetic languages',
  )


def _attach_affixes(
  stem: str, marks: Sequence[str], affixes: dict[str, str], language: Language
) -> str:
  """Returns a stem with the affixes for the given grammatical marks."""
  for mark in AFFIXES:
    if mark in marks:
      if language.morphology is Morphology.PREFIXING:
        stem = affixes[mark] + stem
      else:
        stem += affixes[mark]
  return stem


def build_dictionary(first: Lexicon, second: Lexicon) -> list[tuple[str, str]]:
  """Returns all uninflected words in a language with their translations.

  Tense particles are omitted if one of the languages does not use them.
  """
  omitted = {'past', 'future'}
  if first.has_particles and second.has_particles:
    omitted = set()
  return [
    (first.stems[concept], second.stems[concept])
    for concept in concepts.CONCEPTS
    if concept not in omitted
  ]
