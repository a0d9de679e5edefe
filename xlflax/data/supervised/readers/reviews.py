"""Reader for product reviews with star ratings in Webis-CLS-10's XML files.

The data set contains Amazon reviews of books, DVDs and music in English,
German, French and Japanese. The files are named
`<language>/<domain>/train.review`.

Source: Prettenhofer and Stein (2010).
"""

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence

from xlflax.data.supervised import file_formats, labeled_examples
from xlflax.data.supervised.readers import file_reading
from xlflax.utils import line_splitting

POSITIVE, NEGATIVE = 'positive', 'negative'
_NEUTRAL_STARS = 3.0


@file_formats.register_reader(
  'webis_cls', example=labeled_examples.ClassifiedText
)
def read_reviews(
  path: str | os.PathLike, language: str, *, fields: Sequence[str] = ('text',)
) -> file_reading.Reading:
  """Reads reviews and labels them as positive or negative by their stars.

  For example, `<item><rating>5.0</rating><text>Très bien</text></item>` gives
  `ClassifiedText(id='0', language='fr', text='Très bien', label='positive')`.
  More than three stars are positive and fewer are negative. Reviews with three
  stars are skipped.

  Args:
    path: Path of the file.
    language: Language code of the reviews.
    fields: XML elements of an item that contain its text, such as
      `('summary', 'text')`. Their texts are joined by spaces. At least one must
      exist.

  Raises:
    CorpusError: If the file is not valid XML (the error contains the file and
      the line), if an item has no text or no rating, or if the file is empty.
  """
  examples: list[labeled_examples.Example] = []
  for number, item in enumerate(_parse_xml(path).iter('item')):
    stars = _parse_stars(item, path, number)
    parts = [
      line_splitting.join_lines(item.findtext(field) or '') for field in fields
    ]
    text = ' '.join(filter(None, parts))
    if not text:
      raise file_reading.malformed_line_error(
        'The review must contain text in the element '
        f'{" or ".join(f"<{field}>" for field in fields)}',
        path,
        f'item[{number}]',
      )
    if stars != _NEUTRAL_STARS:
      examples.append(
        labeled_examples.ClassifiedText(
          id=str(number),
          language=language,
          text=text,
          label=POSITIVE if stars > _NEUTRAL_STARS else NEGATIVE,
        )
      )
  file_reading.check_any(examples, path)
  return file_reading.Reading(examples)


def _parse_xml(path) -> ElementTree.Element:
  """Returns the root element of an XML file."""
  text = '\n'.join(line for _, line in file_reading.read_lines(path))
  try:
    return ElementTree.fromstring(text)
  except ElementTree.ParseError as error:
    raise file_reading.malformed_line_error(
      f'The XML file cannot be parsed ({error})', path, error.position[0]
    ) from error
  except ValueError as error:  # The XML declaration has another encoding.
    raise file_reading.malformed_line_error(
      f'The XML file cannot be parsed ({error})', path, 1
    ) from error


def _parse_stars(item: ElementTree.Element, path, number: int) -> float:
  """Returns the number of stars of an item."""
  rating = item.findtext('rating')
  try:
    return float(rating or '')
  except ValueError as error:
    raise file_reading.malformed_line_error(
      'The element <rating> of a review must contain the number of stars',
      path,
      f'item[{number}]',
      got=repr(rating),
    ) from error
