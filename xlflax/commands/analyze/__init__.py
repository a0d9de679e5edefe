"""`xlflax analyze`: one module for each analysis."""

import argparse

from xlflax.commands.flags import parsing

HELP = (
  'Looks into models: how similar two languages are at every layer. '
  'Each analysis writes a folder with JSON, CSV, pictures and one HTML '
  'report. Works on every run directory, imported ones too.'
)
EXAMPLES = """
  # CKA between a model's states of a language and of its translation, with
  # the random encoder as lower bound
  xlflax analyze cka --model_dir=runs/mlm --text=data/tatoeba --output=out/cka

  # bilingual beside monolingual models, paraphrases as upper bound
  xlflax analyze cka --output=out/cka --series='bilingual=runs/{pair}' \\
      --series='monolingual=runs/{language}' \\
      --series='random=runs/{pair},runs/{pair}@untrained' \\
      --text=en-fr=en-fr.tsv --text=en-en=paraphrases.tsv

  # sentence retrieval by layer, with maps learned on other sentences
  xlflax analyze sentences --model_dir=runs/mlm --test=data/tatoeba \\
      --train=corpus@train --output=out/sentences

  # word translation: embeddings, every layer, fastText
  xlflax analyze words --model_dir=runs/mlm --text=en=en.txt --text=fr=fr.txt \\
      --train=en-fr=en-fr.0-5000.txt --test=en-fr=en-fr.5000-6500.txt \\
      --vec=en=wiki.en.vec --vec=fr=wiki.fr.vec --output=out/words

  # word alignment by layer
  xlflax analyze alignment --model_dir=runs/mlm --output=out/alignment \\
      --links=en-de=text.en-de,gold.en-de

  # a map from a French model to an English one: the pivot comes first
  xlflax analyze procrustes --series='maps=runs/{language}' --layers=8 \\
      --text=en-fr=en-fr.tsv --pivot=fr --output=out/map

  # a head trained on layer 8 of an English model, on a French model's layer
  xlflax analyze transfer --head=runs/en_pos --target=runs/fr \\
      --map=out/map/maps.fr-en.100000.layer8.npz --test=fr=fr.conllu \\
      --output=out/transfer

  # evaluation results, and analyses made with --steps=all, along training
  xlflax analyze curves --model_dir=runs/mlm --model_dir=runs/tlm \\
      --output=out/curves

  # every direction of transfer, of two models that `xlflax finetune
  # --directions` fine-tuned
  xlflax analyze directions --result=mlm=out/mlm_xnli \\
      --result=tlm=out/tlm_xnli --output=out/directions
"""

# Each is a module of this room.
KINDS = tuple(
  """cka sentences words alignment procrustes transfer curves
  directions""".split()
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
  """Adds a parser for each analysis."""
  parsing.add_commands(parser, __name__, KINDS, metavar='ANALYSIS')
