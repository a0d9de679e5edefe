"""Sentences as a language writes them, with all labels of their words."""

import dataclasses
from collections.abc import Iterable, Mapping

from studies.synthetic import scripts
from studies.synthetic.lexicon import Lexicon
from studies.synthetic.meaning import Sentence
from studies.synthetic.syntax import Grammar, Node
from studies.synthetic.typology import Language


@dataclasses.dataclass(frozen=True)
class Rendered:
  """A sentence of W words.

  Attributes:
    language: it is written in.
    nodes: W nodes of its tree, in the order of the words.
    heads: W places of heads, from 1; 0 for the root.
  """

  language: Language
  nodes: tuple[Node, ...]
  heads: tuple[int, ...]

  @property
  def words(self) -> tuple[str, ...]:
    """The words; punctuation is a word."""
    return tuple(node.form for node in self.nodes)

  @property
  def text(self) -> str:
    """As it is written: words and punctuation with spaces, or with none."""
    return scripts.join(self.words, self.language.script)

  def phrase(self, key: str) -> str:
    """The phrase at a place, without its particle of case."""
    node = next(n for n in self.nodes if n.key == key)
    inside = [self.nodes.index(n) for n in node.in_order()]
    words = (
      node.form
      for node in self.nodes[min(inside) : max(inside) + 1]
      if node.relation != 'case'
    )
    return scripts.join(words, self.language.script)


class Renderer:
  """Renders meanings in several languages."""

  def __init__(self, lexicons: Mapping[str, Lexicon]):
    self._grammars = {
      code: Grammar(lexicon) for code, lexicon in lexicons.items()
    }

  def __call__(self, sentence: Sentence, code: str) -> Rendered:
    """The sentence in the language of a code."""
    grammar = self._grammars[code]
    root = grammar.sentence(sentence)
    nodes = tuple(root.in_order())
    place = {node: i for i, node in enumerate(nodes, start=1)}
    heads = dict.fromkeys(nodes, 0)
    for node in nodes:
      for child in (*node.before, *node.after):
        heads[child] = place[node]
    return Rendered(grammar.language, nodes, tuple(heads.values()))

  def text(self, sentence: Sentence, code: str) -> str:
    """The sentence's text."""
    return self(sentence, code).text

  def join(self, texts: Iterable[str], code: str) -> str:
    """Sentences as one text."""
    return scripts.join(texts, self._grammars[code].language.script)


def links(
  first: Rendered, second: Rendered
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
  """Word alignment of two renderings of one meaning.

  Returns:
    Sure links (i, j) from 0 of words that mean the same, and links that are
    only possible: of a particle and the word that has an affix for it.
  """
  places = {node.key: j for j, node in enumerate(second.nodes)}
  sure = [
    (i, places[node.key])
    for i, node in enumerate(first.nodes)
    if node.key in places
  ]
  possible = _particles(first, second)
  possible += [(i, j) for j, i in _particles(second, first)]
  return sorted(sure), sorted(possible)


def _particles(first: Rendered, second: Rendered) -> list[tuple[int, int]]:
  affixes = {
    key: j for j, node in enumerate(second.nodes) for key in node.stands_for
  }
  return [
    (i, affixes[node.key])
    for i, node in enumerate(first.nodes)
    if node.key in affixes
  ]
