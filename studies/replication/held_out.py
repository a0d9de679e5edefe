"""Files to test on, made of longer or easier ones; and broken pairs."""

import itertools
import pathlib
import random

from xlflax.storage import paths


def cut(path: pathlib.Path, blocks: int) -> str:
  """A copy of the first so many blocks, which blank lines part; its path."""
  target = path.with_name(f'first_{blocks}.{path.name}')
  if not target.exists():
    found = path.read_text(encoding='utf-8').split('\n\n')[:blocks]
    paths.write_atomically(target, '\n\n'.join(found) + '\n\n')
  return str(target)


def misalign(path: pathlib.Path) -> None:
  """Gives each first side the next pair's second side.

  Args:
    path: `first<TAB>second`, a pair a line.
  """
  sides = [line.split('\t') for line in _lines(path)]
  seconds = [second for _, second in sides]
  paths.write_atomically(
    path,
    ''.join(
      f'{first}\t{second}\n'
      for (first, _), second in zip(
        sides, [*seconds[1:], seconds[0]], strict=True
      )
    ),
  )


def shuffled(
  text: pathlib.Path, gold: pathlib.Path, most: int
) -> tuple[str, str]:
  """Copies of aligned sentences whose second sides are in random order.

  Args:
    text: `first ||| second`, a pair a line.
    gold: links such as `0-1`, of each pair.
    most: the first so many pairs.

  Returns:
    The paths of both.
  """
  places = tuple(
    path.with_name(f'shuffled.{path.name}') for path in (text, gold)
  )
  if not all(path.exists() for path in places):
    lines = zip(*(_lines(path) for path in (text, gold)), strict=True)
    draw = random.Random(0)
    found = [_mixed(draw, *own) for own in itertools.islice(lines, most)]
    for path, own in zip(places, zip(*found, strict=True), strict=True):
      paths.write_atomically(path, '\n'.join(own) + '\n')
  return str(places[0]), str(places[1])


def _mixed(draw: random.Random, sentence: str, links: str) -> tuple[str, str]:
  """A pair and its links, the second side in another order."""
  first, second = sentence.split(' ||| ')
  words = second.split()
  order = draw.sample(range(len(words)), len(words))
  place = {old: new for new, old in enumerate(order)}
  moved = (link.split('-') for link in links.split())
  return (
    f'{first} ||| {" ".join(words[old] for old in order)}',
    ' '.join(f'{i}-{place[int(j)]}' for i, j in moved),
  )


def _lines(path: pathlib.Path) -> list[str]:
  return path.read_text(encoding='utf-8').splitlines()
