"""Product reviews with stars, from the XML of Webis-CLS-10.

Amazon reviews of books, DVDs and music in English, German, French and Japanese;
`<language>/<domain>/train.review`. Prettenhofer & Stein 2010.
"""

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import file_reading

POSITIVE, NEGATIVE = 'positive', 'negative'
_MIDDLE = 3.0
_KIND = 'file of reviews'


@file_formats.register_reader(
  'webis_cls', example=labeled_examples.ClassifiedText
)
def read_reviews(
  path: str | os.PathLike, language: str, *, fields: Sequence[str] = ('text',)
) -> file_reading.Reading:
  """Reads reviews: positive above three stars, negative below.

  Before: `<item><rating>5.0</rating><text>Très bien</text></item>`; after:
  `ClassifiedText(id='0', language='fr', text='Très bien',
  label='positive')`. Reviews of three stars are left out.

  Args:
    path: of the file.
    language: code of the reviews.
    fields: elements of an item that are its text, joined by a space, such as
      `('summary', 'text')`; at least one must be there.

  Raises:
    CorpusError: file:line if it is not XML; an item without text or without a
      number of stars; an empty file.
  """
  examples: list[labeled_examples.Example] = []
  for number, item in enumerate(_root(path).iter('item')):
    stars = _stars(item, path, number)
    parts = [' '.join((item.findtext(field) or '').split()) for field in fields]
    text = ' '.join(filter(None, parts))
    if not text:
      raise file_reading.malformed_line_error(
        _KIND,
        path,
        f'item[{number}]',
        'no text',
        expected='text in ' + ' or '.join(f'<{f}>' for f in fields),
      )
    if stars != _MIDDLE:
      examples.append(
        labeled_examples.ClassifiedText(
          id=str(number),
          language=language,
          text=text,
          label=POSITIVE if stars > _MIDDLE else NEGATIVE,
        )
      )
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


def _root(path) -> ElementTree.Element:
  text = '\n'.join(line for _, line in file_reading.read_lines(path))
  try:
    return ElementTree.fromstring(text)
  except ElementTree.ParseError as error:
    raise file_reading.malformed_line_error(
      'XML file', path, error.position[0], str(error)
    ) from error
  except ValueError as error:  # It names another encoding.
    raise file_reading.malformed_line_error(
      'XML file', path, 1, str(error)
    ) from error


def _stars(item: ElementTree.Element, path, number: int) -> float:
  rating = item.findtext('rating')
  try:
    return float(rating or '')
  except ValueError as error:
    raise file_reading.malformed_line_error(
      _KIND,
      path,
      f'item[{number}]',
      f'the rating {rating!r}',
      expected='a number of stars in <rating>',
    ) from error
