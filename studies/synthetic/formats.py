"""Functions that format synthetic data in public file formats."""

import json
from collections.abc import Iterable, Sequence

from studies.synthetic.rendering import Rendered


def format_tsv(rows: Iterable[Sequence[str]]) -> str:
  """Formats rows as tab-separated columns without a header."""
  return ''.join('\t'.join(row) + '\n' for row in rows)


def format_lines(texts: Iterable[str]) -> str:
  """Formats texts with one text per line."""
  return ''.join(f'{text}\n' for text in texts)


def format_conllu(sentences: Iterable[Rendered], split: str) -> str:
  """Formats sentences as CoNLL-U, without lemmas and features.

  Args:
    sentences: Rendered sentences.
    split: Name of the split, which is part of the sentence IDs.
  """
  blocks = []
  for number, sentence in enumerate(sentences, start=1):
    misc = '_' if ' ' in sentence.text else 'SpaceAfter=No'
    rows = [
      (
        str(i),
        node.form,
        '_',
        node.tag,
        '_',
        '_',
        str(head),
        node.relation,
        '_',
        misc,
      )
      for i, (node, head) in enumerate(
        zip(sentence.nodes, sentence.heads, strict=True), start=1
      )
    ]
    blocks.append(_comments(sentence, number, split) + format_tsv(rows) + '\n')
  return ''.join(blocks)


def format_iob2(sentences: Iterable[Rendered], split: str) -> str:
  """Formats sentences as Universal NER: `id<TAB>word<TAB>tag<TAB>-<TAB>-`.

  Args:
    sentences: Rendered sentences.
    split: Name of the split, which is part of the sentence IDs.
  """
  return ''.join(
    _comments(sentence, number, split)
    + format_tsv(
      (str(i), node.form, node.entity, '-', '-')
      for i, node in enumerate(sentence.nodes, start=1)
    )
    + '\n'
    for number, sentence in enumerate(sentences, start=1)
  )


def format_alignment_text(pairs: Iterable[tuple[Rendered, Rendered]]) -> str:
  """Formats sentence pairs as `source ||| target`, with spaces between words.

  The words are separated by spaces in every script.
  """
  return format_lines(
    f'{" ".join(first.words)} ||| {" ".join(second.words)}'
    for first, second in pairs
  )


def format_alignment_links(
  links: Iterable[tuple[list[tuple[int, int]], list[tuple[int, int]]]],
) -> str:
  """Formats word alignments: `i-j` for sure links, `ipj` for possible links.

  Each line contains the links of one sentence pair.

  Args:
    links: Sure links and possible links of each sentence pair, as two lists of
      word index pairs (i, j).
  """
  return format_lines(
    ' '.join([f'{i}-{j}' for i, j in sure] + [f'{i}p{j}' for i, j in possible])
    for sure, possible in links
  )


def format_squad(paragraphs: Iterable[dict], *, version: str = '1.1') -> str:
  """Formats paragraphs as SQuAD JSON, with one article per paragraph.

  Args:
    paragraphs: Paragraphs in the SQuAD format.
    version: Version of the format, '1.1' or 'v2.0'.
  """
  data = [
    {'title': f'synthetic-{number}', 'paragraphs': [paragraph]}
    for number, paragraph in enumerate(paragraphs)
  ]
  return (
    json.dumps({'version': version, 'data': data}, ensure_ascii=False, indent=1)
    + '\n'
  )


def _comments(sentence: Rendered, number: int, split: str) -> str:
  """Returns a sentence's comment lines in CoNLL-U and Universal NER."""
  return f'# sent_id = {split}-{number:05}\n# text = {sentence.text}\n'
