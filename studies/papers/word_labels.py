"""Conversion of entity labels from Chinese characters to segmented words.

  python -m studies.papers.word_labels CHARACTERS > WORDS

ECS (Wu et al., 2020, section 3.2) evaluates named-entity recognition on Chinese
data that label characters, with labels that were transferred to segmented
words. The input contains one character and its IOB2 label per line, separated
by a space or a tab, and an empty line between sentences. The output contains
one word and its IOB2 label per line, separated by a tab.
"""

import argparse
import itertools
import pathlib
import sys
from collections.abc import Callable, Iterable, Sequence

from studies import command_line
from xlflax.data.corpus import word_segmentation
from xlflax.evaluation.metrics import tagging_metrics


def transfer_labels(
  characters: Sequence[str], labels: Sequence[str], words: Iterable[str]
) -> list[tuple[str, str]]:
  """Transfers the labels of characters to the words of a sentence.

  A word that is only partly in an entity is split at the boundary of the
  entity. The entities of the result therefore consist of the same characters as
  those of the input.

  Args:
    characters: Characters of the sentence. An element of this list may also be
      a string of several characters, such as a number, which is never split.
    labels: IOB2 label of each item of `characters`.
    words: Words of the sentence, whose concatenation is the sentence.

  Returns:
    Words and their IOB2 labels.

  Raises:
    ValueError: If the concatenated words differ from the sentence.
  """
  words = list(words)
  if ''.join(words) != ''.join(characters):
    raise ValueError(
      'The concatenated words must equal the sentence '
      f'{"".join(characters)!r}, but the words are {words}.'
    )
  offsets = [0, *itertools.accumulate(map(len, characters))]
  word_ends = set(itertools.accumulate(map(len, words)))
  spans = [
    (kind, first, last + 1)
    for kind, first, last in tagging_metrics.entity_spans(labels)
  ]
  entity_bounds = {bound for _, *bounds in spans for bound in bounds}
  bounds = [
    index
    for index, offset in enumerate(offsets)
    if offset == 0 or offset in word_ends or index in entity_bounds
  ]
  labeled_words = []
  for start, end in itertools.pairwise(bounds):
    label = 'O'
    for kind, first, last in spans:
      if first <= start < last:
        label = f'{"B" if start == first else "I"}-{kind}'
    labeled_words.append((''.join(characters[start:end]), label))
  return labeled_words


def convert(
  lines: Iterable[str], segment: Callable[[str], Iterable[str]]
) -> Iterable[str]:
  """Converts lines of labeled characters to lines of labeled words.

  Args:
    lines: Lines that each contain a character and its label, separated by
      whitespace. An empty line ends a sentence.
    segment: Function that segments a sentence into words.
  """
  stripped = (line.strip() for line in lines)
  for is_sentence, group in itertools.groupby(stripped, key=bool):
    if not is_sentence:
      yield ''
      continue
    columns = [line.split() for line in group]
    characters = [fields[0] for fields in columns]
    labels = [fields[-1] for fields in columns]
    words = segment(''.join(characters))
    for word, label in transfer_labels(characters, labels, words):
      yield f'{word}\t{label}'


def main(arguments: Sequence[str] | None = None) -> int:
  """Runs the command and returns the exit status."""
  parser = command_line.create_parser('studies.papers.word_labels', __doc__)
  parser.add_argument(
    'characters',
    type=pathlib.Path,
    metavar='CHARACTERS',
    help='File of characters and their labels.',
  )
  return command_line.run_command(parser, _print_words, arguments)


def _print_words(args: argparse.Namespace) -> None:
  """Reads a file of labeled characters and prints the labeled words."""
  lines = args.characters.read_text(encoding='utf-8').splitlines()
  for line in convert(lines, word_segmentation.chinese_words()):
    print(line)


if __name__ == '__main__':
  sys.exit(main())
