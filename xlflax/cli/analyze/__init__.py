"""`xlflax analyze`: compares how models represent different languages.

Each analysis reads the directories of training runs or imported models, and
writes a directory with JSON, CSV, plots and one HTML report.
"""

from xlflax.cli.analyze import (
  alignment,
  cka,
  learning_curves,
  lexicon_induction,
  procrustes,
  sentence_retrieval,
  transfer,
  transfer_matrix,
)

EXAMPLES = r"""
Compute CKA between the hidden states of a language and of its translation,
with a randomly initialized encoder as lower bound:
  xlflax analyze cka --model_dir=runs/mlm --text=data/tatoeba --output=out/cka

Compare bilingual with monolingual models, with paraphrases as upper bound:
  xlflax analyze cka --output=out/cka --models='bilingual=runs/{pair}' \
      --models='monolingual=runs/{language}' \
      --models='random=runs/{pair},runs/{pair}@untrained' \
      --text=en-fr=en-fr.tsv --text=en-en=paraphrases.tsv

Retrieve sentences by the states of each layer, with maps learned from other
sentences:
  xlflax analyze sentence-retrieval --model_dir=runs/mlm --test=data/tatoeba \
      --train=corpus@train --output=out/retrieval

Translate words by embeddings, by the states of each layer, and by fastText:
  xlflax analyze lexicon-induction --model_dir=runs/mlm --text=en=en.txt \
      --text=fr=fr.txt --train=en-fr=en-fr.0-5000.txt \
      --test=en-fr=en-fr.5000-6500.txt --vec=en=wiki.en.vec \
      --vec=fr=wiki.fr.vec --output=out/lexicon

Align words by the states of each layer:
  xlflax analyze alignment --model_dir=runs/mlm --output=out/alignment \
      --gold_alignments=en-de=text.en-de,gold.en-de

Learn a map from a French model to an English one (the pivot comes first):
  xlflax analyze procrustes --models='maps=runs/{language}' --layers=8 \
      --text=en-fr=en-fr.tsv --pivot=fr --output=out/map

Apply a head, trained on layer 8 of an English model, to a French model:
  xlflax analyze transfer --head_model=runs/en_pos --target_model=runs/fr \
      --alignment_map=out/map/maps.fr-en.100000.layer8.npz \
      --test=fr=fr.conllu --output=out/transfer

Plot the results of `xlflax evaluate` over training steps:
  xlflax analyze learning-curves --model_dir=runs/mlm --model_dir=runs/tlm \
      --output=out/curves

Compare the transfer between all languages of two models:
  xlflax analyze transfer-matrix --result=mlm=out/mlm_xnli \
      --result=tlm=out/tlm_xnli --output=out/transfer_matrix
"""

SUBCOMMANDS = {
  'cka': cka.main,
  'sentence-retrieval': sentence_retrieval.main,
  'lexicon-induction': lexicon_induction.main,
  'alignment': alignment.main,
  'procrustes': procrustes.main,
  'transfer': transfer.main,
  'learning-curves': learning_curves.main,
  'transfer-matrix': transfer_matrix.main,
}
