"""The words of a language: stems, shared words and affixes."""

import dataclasses
from collections.abc import Sequence

from studies.synthetic import concepts, scripts
from studies.synthetic.draws import Draws
from studies.synthetic.typology import Language, Morphology
from xlflax.utils import errors

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
_TRIES = 10_000


@dataclasses.dataclass(frozen=True)
class Lexicon:
  """What each concept is called in a language.

  Attributes:
    language: whose words they are.
    stems: concept -> word.
    affixes: of `AFFIXES`; {} in an isolating language.
    anchors: concepts whose word all languages share. Such words are not
      inflected, so that they are the same string everywhere; shared verbs
      take particles of tense.
  """

  language: Language
  stems: dict[str, str]
  affixes: dict[str, str]
  anchors: frozenset[str]

  def inflects(self, concept: str) -> bool:
    """Whether the concept's word takes affixes."""
    return bool(self.affixes) and concept not in self.anchors

  @property
  def has_particles(self) -> bool:
    """Whether the language uses the particles of tense."""
    return any(
      not self.inflects(c.id)
      for c in concepts.CONCEPTS.values()
      if c.tag == 'VERB'
    )

  def form(self, concept: str, marks: Sequence[str] = ()) -> str:
    """A word with affixes, in the order of `AFFIXES` from the stem."""
    return _attach(self.stems[concept], marks, self.affixes, self.language)


def build(
  languages: Sequence[Language], *, seed: int, anchors: float
) -> dict[str, Lexicon]:
  """The lexicons of languages, the first of which lends the shared words.

  No string is a word of two languages, or of two concepts, but for the
  shared words. Words of earlier languages don't depend on later ones, and
  the words shared at one share are also shared at a larger one.

  Args:
    languages: distinct.
    seed: of all words.
    anchors: share of the concepts, function words apart, whose words are
      shared.
  """
  shared = _shared(seed, anchors)
  taken: set[str] = set()
  out: dict[str, Lexicon] = {}
  for language in languages:
    first = next(iter(out.values()), None)
    out[language.code] = _build(language, first, seed, shared, taken)
  return out


def _shared(seed: int, share: float) -> frozenset[str]:
  names = [
    c.id for c in concepts.CONCEPTS.values() if concepts.is_anchorable(c)
  ]
  Draws(seed, 'anchors').shuffle(names)
  return frozenset(names[: round(share * len(names))])


def _build(
  language: Language,
  first: Lexicon | None,
  seed: int,
  shared: frozenset[str],
  taken: set[str],
) -> Lexicon:
  draws = Draws(seed, 'lexicon', language.code, language.script.value)
  affixes = {}
  if language.morphology is not Morphology.ISOLATING:
    affixes = _affixes(language, draws)
  lexicon = Lexicon(language, {}, affixes, shared)
  for concept in concepts.CONCEPTS.values():
    if first is not None and concept.id in shared:
      lexicon.stems[concept.id] = first.stems[concept.id]
    else:
      _invent(concept, lexicon, draws, taken)
  return lexicon


def _affixes(language: Language, draws: Draws) -> dict[str, str]:
  found: list[str] = []
  while len(found) < len(AFFIXES):
    affix = scripts.affix(language.script, draws)
    if affix not in found:
      found.append(affix)
  return dict(zip(AFFIXES, found, strict=True))


def _invent(concept, lexicon: Lexicon, draws: Draws, taken: set[str]) -> None:
  """Adds a word no form of which is another word's."""
  for _ in range(_TRIES):
    invent = (
      scripts.function_word
      if concept.group == 'function'
      else scripts.content_word
    )
    stem = invent(lexicon.language.script, draws)
    if (
      concept.tag == 'PROPN'
      and scripts.LETTERS[lexicon.language.script].has_case
    ):
      stem = stem.capitalize()
    forms = {stem}
    if lexicon.inflects(concept.id):
      forms |= {
        _attach(stem, marks, lexicon.affixes, lexicon.language)
        for marks in _MARKS.get(concept.tag, ())
      }
    # Compared without case: uncased vocabularies tell words apart as well.
    folded = {form.lower() for form in forms}
    if len(folded) == len(forms) and not folded & taken:
      taken |= folded
      lexicon.stems[concept.id] = stem
      return
  raise errors.ConfigError(
    'No word is left for a language',
    got=lexicon.language.code,
    expected='fewer languages of one script',
    where='synthetic languages',
  )


def _attach(
  stem: str, marks: Sequence[str], affixes: dict[str, str], language: Language
) -> str:
  for mark in AFFIXES:
    if mark in marks:
      if language.morphology is Morphology.PREFIXING:
        stem = affixes[mark] + stem
      else:
        stem += affixes[mark]
  return stem


def dictionary(first: Lexicon, second: Lexicon) -> list[tuple[str, str]]:
  """Every word of two languages with its translation, uninflected.

  Particles that one of the languages never uses are left out.
  """
  particles = {'past', 'future'}
  if first.has_particles and second.has_particles:
    particles = set()
  return [
    (first.stems[c], second.stems[c])
    for c in concepts.CONCEPTS
    if c not in particles
  ]
