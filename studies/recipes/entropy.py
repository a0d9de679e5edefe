"""Prints the entropy of each language's token frequencies, in nats.

python -m studies.recipes.entropy CORPUS VOCABULARY
"""

import collections
import math
import pathlib
import sys

import sentencepiece


def main(corpus: str, vocabulary: str) -> None:
  """Prints the entropy for each monolingual text in the corpus."""
  model = str(pathlib.Path(vocabulary) / 'sentencepiece.model')
  processor = sentencepiece.SentencePieceProcessor(model_file=model)
  for path in sorted(pathlib.Path(corpus, 'mono').glob('*.txt')):
    counts: collections.Counter[int] = collections.Counter()
    for line in path.read_text('utf-8').splitlines():
      counts.update(processor.encode(line.strip()))
    total = sum(counts.values())
    frequencies = [count / total for count in counts.values()]
    entropy = -sum(frequency * math.log(frequency) for frequency in frequencies)
    print(f'{path.name}: {total:,} tokens, {entropy:.2f}')


if __name__ == '__main__':
  main(*sys.argv[1:])
