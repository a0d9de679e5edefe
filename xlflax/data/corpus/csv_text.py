"""Detection of comma-separated values (CSV), which corpora cannot contain."""

import csv
import pathlib
import shlex

# Separators of the columns of CSV files.
_DELIMITERS = (',', ';')


def find_delimiter(text: str) -> str | None:
  """Returns the delimiter of a line that is probably a pair in the CSV format.

  For example, the result is a comma for `Hello.,Bonjour.` and for `"Yes, I
  do.",Oui.`, and a semicolon for `Hello.;Bonjour.`. It is None for `Yes, I
  do.`, because writers of CSV do not add a space after a delimiter. It is also
  None if the delimiter separates digits.

  Args:
    text: Line of a text file.
  """
  if '\t' in text:
    return None
  return next((x for x in _DELIMITERS if _is_csv_pair(text, x)), None)


def _is_csv_pair(text: str, delimiter: str) -> bool:
  try:
    columns = next(csv.reader([text], delimiter=delimiter, strict=True), [])
  except csv.Error:
    return False
  if len(columns) != 2 or not all(
    any(map(str.isalpha, column)) for column in columns
  ):
    return False
  first, second = columns
  is_number = first[-1].isdigit() and second[0].isdigit()
  return not second.startswith(' ') and not is_number


def describe_conversion(
  path: pathlib.Path, *, num_columns: int, delimiter: str = ','
) -> str:
  """Returns the hint with the command that converts a CSV file to text.

  Args:
    path: Path of the CSV file. The name may end in `.tsv`, or in `.gz`.
    num_columns: Number of columns of the converted file. If it is 1, only the
      first column is converted.
    delimiter: Separator of the columns of the CSV file.
  """
  prefix = ''
  if path.suffix in ('.gz', '.zst', '.xz'):
    path = path.with_suffix('')
    prefix = 'Decompress the file. '
  csv_path = path.with_suffix('.csv')
  if csv_path != path:
    prefix += f'Rename the file to {csv_path.name}. '
  if num_columns == 1:
    converted_path = path.with_suffix('.txt')
    columns = "' '.join(row[0].split())"
    note = ' The index 0 selects the first column.'
  else:
    converted_path = path.with_suffix('.tsv')
    columns = "*(' '.join(text.split()) for text in row), sep='\\t'"
    note = ''
  options = '' if delimiter == ',' else f", delimiter='{delimiter}'"
  program = (
    f'import csv, sys; [print({columns}) for row in '
    f'csv.reader(sys.stdin{options})]'
  )
  return (
    f'{prefix}Convert the CSV file with `python -c "{program}" < '
    f'{shlex.quote(str(csv_path))} > {shlex.quote(str(converted_path))}`, and '
    f'remove the CSV file from the corpus.{note}'
  )
