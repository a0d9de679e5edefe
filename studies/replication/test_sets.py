"""Shortened test files, and files with deliberately misaligned pairs."""

import itertools
import pathlib
import random

from xlflax.storage import paths


def truncate_blocks(path: pathlib.Path, max_blocks: int) -> str:
  """Copies the first blocks of a file, unless the copy already exists.

  Args:
    path: File whose blocks are separated by blank lines.
    max_blocks: Number of blocks to copy.

  Returns:
    The path of the copy.
  """
  target = path.with_name(f'first_{max_blocks}.{path.name}')
  if not target.exists():
    blocks = path.read_text(encoding='utf-8').split('\n\n')[:max_blocks]
    paths.write_atomically(target, '\n\n'.join(blocks) + '\n\n')
  return str(target)


def misalign_pairs(path: pathlib.Path) -> None:
  """Replaces the second sentence of each pair with that of the next pair.

  Args:
    path: File with lines `first<TAB>second`, which is overwritten.
  """
  pairs = [line.split('\t') for line in _read_lines(path)]
  second_sides = [second for _, second in pairs]
  rotated = [*second_sides[1:], second_sides[0]]
  lines = [
    f'{first}\t{second}\n'
    for (first, _), second in zip(pairs, rotated, strict=True)
  ]
  paths.write_atomically(path, ''.join(lines))


def shuffle_second_sides(
  text: pathlib.Path, links: pathlib.Path, max_pairs: int
) -> tuple[str, str]:
  """Copies word-aligned pairs and shuffles the words of the second sentences.

  Args:
    text: File with lines `first ||| second`.
    links: File with the word alignment of each pair, such as `0-1 1-0`.
    max_pairs: Number of pairs to copy.

  Returns:
    The paths of both copies.
  """
  targets = tuple(
    path.with_name(f'shuffled.{path.name}') for path in (text, links)
  )
  if not all(path.exists() for path in targets):
    lines = zip(_read_lines(text), _read_lines(links), strict=True)
    rng = random.Random(0)
    shuffled = [
      _shuffle_pair(rng, pair, pair_links)
      for pair, pair_links in itertools.islice(lines, max_pairs)
    ]
    for path, column in zip(targets, zip(*shuffled, strict=True), strict=True):
      paths.write_atomically(path, '\n'.join(column) + '\n')
  return str(targets[0]), str(targets[1])


def _shuffle_pair(rng: random.Random, pair: str, links: str) -> tuple[str, str]:
  """Shuffles the words in the second sentence, and renumbers the links."""
  first, second = pair.split(' ||| ')
  words = second.split()
  order = rng.sample(range(len(words)), len(words))
  new_positions = {old: new for new, old in enumerate(order)}
  positions = (link.split('-') for link in links.split())
  return (
    f'{first} ||| {" ".join(words[old] for old in order)}',
    ' '.join(f'{i}-{new_positions[int(j)]}' for i, j in positions),
  )


def _read_lines(path: pathlib.Path) -> list[str]:
  return path.read_text(encoding='utf-8').splitlines()
