"""Sentences in a language, with linguistic annotations of each word."""

import dataclasses
from collections.abc import Iterable, Mapping

from studies.synthetic import scripts
from studies.synthetic.lexicon import Lexicon
from studies.synthetic.meaning import Sentence
from studies.synthetic.syntax import Grammar, Node
from studies.synthetic.typology import Language


@dataclasses.dataclass(frozen=True)
class Rendered:
  """A sentence of W words in a language, with linguistic annotations.

  Attributes:
    language: Language of the sentence.
    nodes: The W nodes of the dependency tree, in the order of the words.
    heads: One-based position of each word's head. The root has head 0.
  """

  language: Language
  nodes: tuple[Node, ...]
  heads: tuple[int, ...]

  @property
  def words(self) -> tuple[str, ...]:
    """Words of the sentence, including punctuation."""
    return tuple(node.form for node in self.nodes)

  @property
  def text(self) -> str:
    """Text of the sentence.

    Words are separated by spaces if the script uses spaces.
    """
    return scripts.join_words(self.words, self.language.script)

  def phrase(self, key: str) -> str:
    """Returns the text of a phrase without its adposition.

    Args:
      key: Key of the phrase's head (see `syntax.Node`).
    """
    head = next(node for node in self.nodes if node.key == key)
    indices = [self.nodes.index(node) for node in head.in_order()]
    forms = (
      node.form
      for node in self.nodes[min(indices) : max(indices) + 1]
      if node.relation != 'case'
    )
    return scripts.join_words(forms, self.language.script)


class Renderer:
  """Renderer that expresses meanings as sentences in several languages.

  Args:
    lexicons: Map from language code to lexicon.
  """

  def __init__(self, lexicons: Mapping[str, Lexicon]):
    self._grammars = {
      code: Grammar(lexicon) for code, lexicon in lexicons.items()
    }

  def __call__(self, sentence: Sentence, code: str) -> Rendered:
    """Renders a sentence in the language with the given code."""
    grammar = self._grammars[code]
    root = grammar.build_tree(sentence)
    nodes = tuple(root.in_order())
    positions = {node: i for i, node in enumerate(nodes, start=1)}
    heads = dict.fromkeys(nodes, 0)
    for node in nodes:
      for dependent in (*node.before, *node.after):
        heads[dependent] = positions[node]
    return Rendered(grammar.language, nodes, tuple(heads.values()))

  def text(self, sentence: Sentence, code: str) -> str:
    """Returns the text of a sentence in the language with the given code."""
    return self(sentence, code).text

  def join(self, texts: Iterable[str], code: str) -> str:
    """Joins sentences into one text, with spaces if the language uses them."""
    return scripts.join_words(texts, self._grammars[code].language.script)


def align_words(
  first: Rendered, second: Rendered
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
  """Returns the word alignment between two translations of the same meaning.

  Returns:
    The sure links (i, j) between words with the same meaning, and the possible
    links between a particle and the word with the corresponding affix. The
    indices start at 0.
  """
  indices = {node.key: j for j, node in enumerate(second.nodes)}
  sure = [
    (i, indices[node.key])
    for i, node in enumerate(first.nodes)
    if node.key in indices
  ]
  possible = _align_particles(first, second)
  possible += [(i, j) for j, i in _align_particles(second, first)]
  return sorted(sure), sorted(possible)


def _align_particles(
  first: Rendered, second: Rendered
) -> list[tuple[int, int]]:
  """Returns links from particles in `first` to affixed words in `second`."""
  affixes = {
    key: j for j, node in enumerate(second.nodes) for key in node.affix_keys
  }
  return [
    (i, affixes[node.key])
    for i, node in enumerate(first.nodes)
    if node.key in affixes
  ]
