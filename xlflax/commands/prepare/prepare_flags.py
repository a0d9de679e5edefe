"""The flags of `xlflax prepare`."""

from typing import Annotated

import annotated_types

from xlflax.commands.flags import json_lines
from xlflax.data.corpus import likeness
from xlflax.data.dictionaries.settings import CodeSwitching
from xlflax.foundation import flag_tables

FLAGS = f"""
--corpus DIR (required): corpus directory to read
--output DIR (required): corpus directory to write
--languages CODES: comma-separated; others are left out
--moses (switch): normalise punctuation and tokenise, dictionaries too
--split_sentences (switch): a line of monolingual text becomes one line for each
  of its sentences, before all else (sentencex; pairs stay)
--segment_chinese (switch): put spaces between the words of Chinese (jieba)
--min_letters N (Natural): drop lines with fewer letters, such as numbers
  (default: 1; 0 keeps them)
--max_similarity N (Share): drop pairs whose sides are equal, or have a larger
  share of their character trigrams in common: they were not translated
  (default: {likeness.COPIED}; 1 keeps them)
--min_characters N (Natural): drop shorter lines
--max_characters N (Count): drop longer lines
--min_script_share N (Share): drop lines with a smaller share of letters of
  their language's script
--min_language_probability N (Share): drop lines that are not of their language
  with so much probability, given what the languages of their file are
  (py3langid; lines of languages that it does not know stay; 0.5, say)
--max_ratio N (Ratio): drop pairs of which one side has so many times more
  characters
--duplicates (one of keep equal near, default keep): drop lines that are equal,
  but for case and punctuation, or near to another one; held-out text comes
  first, so no training line is like a held-out one
--near_bands (Count): of a signature, one of which near lines have in common
--near_rows (Count): values in a band
--near_characters (Count): of the n-grams that lines are compared by
--decontaminate FILES: drop training lines that have 13 words in a row in common
  with a text of these comma-separated files (.txt, .tsv with a text in each
  column, .jsonl …), or are equal to a shorter one; of scripts without spaces a
  character is a word
--min_margin (Positive): drop training pairs whose margin is lower: the cosine
  of the two sides beside that of their nearest neighbours (Artetxe and Schwenk
  2019; 1.06, say)
--margin_model DIR: run whose encoder gives the vectors
--margin_layer (Layers): of the encoder, 0 for the embeddings (default: the
  last)
--code_switch (switch): replace words of monolingual training text by the
  dictionaries' translations; the tasks corpus.code_switched.* do so without a
  corpus of its own
--code_switch_probability P (Share): of replacing a word that a dictionary has
  (default: {CodeSwitching.probability})
--code_switch_max_share S (Share): of the words of a group of lines, that are
  replaced at most (default: {CodeSwitching.max_share})
--code_switch_group_lines (Count): lines that the share is of (default:
  {CodeSwitching.group_lines})
--code_switch_into CODES: comma-separated languages of the translations
  (default: all of the dictionaries)
--copies (Count): differently switched copies of the text (default:
  {CodeSwitching.copies})
--seed (Seed): of the switching (default: {CodeSwitching.seed})
--num_processes (Processes, default 1)
--shard I/N (Shard): write only the I-th of N shares of the files, I from 0,
  beside other machines that write the others to the same directory; "auto" asks
  the job. The command without it checks, and writes what is missing
--overwrite (switch): replace an output of other settings
{json_lines.FLAG}
"""
FLAG_KINDS = {'Ratio': flag_tables.of(Annotated[float, annotated_types.Ge(1)])}
