"""The public file formats, as text."""

import json
from collections.abc import Iterable, Sequence

from studies.synthetic.rendering import Rendered


def tsv(rows: Iterable[Sequence[str]]) -> str:
  """Columns separated by tabs, without a header."""
  return ''.join('\t'.join(row) + '\n' for row in rows)


def lines(texts: Iterable[str]) -> str:
  """One text a line."""
  return ''.join(f'{text}\n' for text in texts)


def conllu(sentences: Iterable[Rendered], split: str) -> str:
  """CoNLL-U: ten columns; lemma and features are left open."""
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
    blocks.append(_comments(sentence, number, split) + tsv(rows) + '\n')
  return ''.join(blocks)


def iob2(sentences: Iterable[Rendered], split: str) -> str:
  """Universal NER: `id<TAB>word<TAB>tag<TAB>-<TAB>-`."""
  return ''.join(
    _comments(sentence, number, split)
    + tsv(
      (str(i), node.form, node.entity, '-', '-')
      for i, node in enumerate(sentence.nodes, start=1)
    )
    + '\n'
    for number, sentence in enumerate(sentences, start=1)
  )


def alignment_text(pairs: Iterable[tuple[Rendered, Rendered]]) -> str:
  """`source ||| target`, words separated by spaces in any script."""
  return lines(
    f'{" ".join(first.words)} ||| {" ".join(second.words)}'
    for first, second in pairs
  )


def alignment_links(links) -> str:
  """`i-j` for sure links and `ipj` for those that are only possible."""
  return lines(
    ' '.join([f'{i}-{j}' for i, j in sure] + [f'{i}p{j}' for i, j in possible])
    for sure, possible in links
  )


def squad(paragraphs: Iterable[dict], *, version: str = '1.1') -> str:
  """SQuAD's JSON: one article for each paragraph."""
  data = [
    {'title': f'synthetic-{number}', 'paragraphs': [paragraph]}
    for number, paragraph in enumerate(paragraphs)
  ]
  return (
    json.dumps({'version': version, 'data': data}, ensure_ascii=False, indent=1)
    + '\n'
  )


def _comments(sentence: Rendered, number: int, split: str) -> str:
  return f'# sent_id = {split}-{number:05}\n# text = {sentence.text}\n'
