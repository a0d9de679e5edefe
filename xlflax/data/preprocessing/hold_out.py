"""Selection of training documents that are held out for evaluation.

The documents with the smallest hashes are held out. The selection is therefore
random, but it does not depend on the order of the documents, and documents with
the same words are always in the same split.
"""

import collections
import dataclasses
import hashlib
import logging
from collections.abc import Sequence

import numpy as np

from xlflax.data.corpus import corpus_directory, text_similarity
from xlflax.data.corpus.corpus_directory import TEST, TRAIN, VALIDATION, Corpus
from xlflax.data.corpus.corpus_files import Kind, LineSplits, TextFile
from xlflax.utils import errors, plurals, progress_reporting

_HELD_OUT_SPLITS = (VALIDATION, TEST)
_SALT = b'hold out'


def hold_out_documents(
  corpus: Corpus, num_documents: int, languages: Sequence[str] | None = None
) -> Corpus:
  """Holds out training documents of each language for validation and test.

  Documents of monolingual text are separated by blank lines. A monolingual file
  without blank lines has no documents, so each of its lines counts as a
  document. Documents with the same words are counted once and are in the same
  split. A document of parallel text is a pair, and pairs with the same source
  are counted once and are in the same split. The number of documents and of
  lines that are held out is logged. If a language or language pair already
  has validation or test text, no documents are held out for this split.

  Args:
    corpus: Corpus whose training text is divided.
    num_documents: Number of distinct documents to hold out for validation, and
      the same number for test. Each language and each language pair has its own
      held-out documents.
    languages: Languages whose text is divided into splits. If None, the text in
      all languages is divided.

  Returns:
    The corpus, in which a training file is replaced by three files with the
    same path. Each of them contains the lines of one split.

  Raises:
    CorpusError: If a language or language pair has too few documents.
  """
  groups = collections.defaultdict(list)
  for file in corpus.files:
    is_selected = languages is None or set(file.languages) <= set(languages)
    if file.split == TRAIN and file.kind is not Kind.DICTIONARY and is_selected:
      groups[file.kind, file.languages].append(file)
  files = [
    file
    for file in corpus.files
    if not any(file in group for group in groups.values())
  ]
  for (_, codes), group in groups.items():
    splits = [
      split for split in _HELD_OUT_SPLITS if split not in corpus.splits(*codes)
    ]
    if len(splits) < len(_HELD_OUT_SPLITS):
      existing = ' and '.join(set(_HELD_OUT_SPLITS) - set(splits))
      logging.info(
        'Keeping the existing %s text in %s.', existing, '-'.join(codes)
      )
    files += _divide_group(group, splits, num_documents)
  return corpus.with_files(files)


def _divide_group(
  files: Sequence[TextFile], splits: Sequence[str], num_documents: int
) -> list[TextFile]:
  """Divides the files of a language or language pair into splits."""
  if not splits:
    return list(files)
  hashes_and_units = [_document_hashes(file) for file in files]
  hashes_of_files = [hashes for hashes, _ in hashes_and_units]
  units = sorted({unit for _, unit in hashes_and_units})
  unit = ' or '.join(units)
  distinct_hashes = np.unique(np.concatenate(hashes_of_files))
  if len(distinct_hashes) <= num_documents * len(splits):
    raise errors.CorpusError(
      f'The corpus contains too few distinct {unit} in '
      f'{"-".join(files[0].languages)}: {num_documents:,} are held out for each '
      f'split ({", ".join(splits)}), so none would remain for training',
      got=f'{len(distinct_hashes):,} distinct {unit}',
      expected=f'more than {num_documents * len(splits):,}',
      where=str(files[0].path),
      fix='Pass a smaller --hold_out.',
    )
  divided_files = []
  num_lines: collections.Counter[str] = collections.Counter()
  for file, hashes in zip(files, hashes_of_files, strict=True):
    ranks = np.searchsorted(distinct_hashes, hashes) // num_documents
    line_splits = LineSplits(
      names=(*splits, TRAIN),
      indices=np.minimum(ranks, len(splits)).astype(np.uint8),
    )
    num_lines.update(
      {split: int(line_splits.mask(split).sum()) for split in splits}
    )
    divided_files += [
      dataclasses.replace(file, split=split, line_splits=line_splits)
      for split in line_splits.names
      # The training file is also kept if it has no lines, because its bad
      # records are reported.
      if split == TRAIN or line_splits.mask(split).any()
    ]
  logging.log(
    logging.INFO if len(units) == 1 else logging.WARNING,
    'Holding out %s distinct %s of %s for each of %s.',
    f'{num_documents:,}',
    unit,
    '-'.join(files[0].languages),
    ' and '.join(
      f'{split} ({plurals.format_count(num_lines[split], "line")})'
      for split in splits
    ),
  )
  return divided_files


def _document_hashes(file: TextFile) -> tuple[np.ndarray, str]:
  """Computes the hash of the document that contains each line with text.

  Returns:
    The hashes, uint64 [lines], and the unit that counts as a document: 'pairs',
    'documents', or 'lines' for a monolingual file without blank lines.
  """
  line_hashes: list[int] = []
  document_hashes: list[int] = []
  document_lengths: list[int] = []
  document = hashlib.blake2b(_SALT, digest_size=8)
  length = 0

  def end_document():
    nonlocal document, length
    if length:
      document_hashes.append(int.from_bytes(document.digest(), 'little'))
      document_lengths.append(length)
    document = hashlib.blake2b(_SALT, digest_size=8)
    length = 0

  label = f'hold out, {file.path.name}'
  with progress_reporting.Progress(label, unit='lines') as report:
    for texts in corpus_directory.read_texts(file):
      if not texts[0]:
        end_document()
        continue
      report(1)
      text = text_similarity.normalize_for_comparison(texts[0]).encode() + b'\n'
      line_hashes.append(_hash(text))
      document.update(text)
      length += 1
  end_document()
  if file.kind is Kind.PARALLEL or len(document_hashes) < 2:
    unit = 'pairs' if file.kind is Kind.PARALLEL else 'lines'
    return np.array(line_hashes, np.uint64), unit
  hashes = np.repeat(np.array(document_hashes, np.uint64), document_lengths)
  return hashes, 'documents'


def _hash(text: bytes) -> int:
  digest = hashlib.blake2b(_SALT + text, digest_size=8).digest()
  return int.from_bytes(digest, 'little')
