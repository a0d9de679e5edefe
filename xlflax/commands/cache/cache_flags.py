"""The flags of `xlflax cache`."""

from xlflax.commands.flags import json_lines

FLAGS = f"""
action (optional, one of write finish, default write): finish: check that
  the shards of all --shard=i/N are there, and seal the cache; takes their flags
--output DIR (required): directory of the cache; what is in it stays
--vocabulary DIR: directory made by `xlflax vocab`
--verify (switch): write nothing: read the cache in --output and compare every
  file with its digest
--stage DIR: write nothing: copy the cache in --output, which may be in a
  bucket, to a local disk, for training to read it there
--corpus DIR: corpus directory; registers corpus.*
--mixture NAME (repeated): SeqIO mixture or task; may be repeated (default:
  corpus.mono and corpus.parallel, as far as the corpus has them)
--split NAME (repeated): may be repeated (default: train)
--num_processes (Processes, default 1): processes that tokenise
--shard_size BYTES (Bytes, default {1 << 26}): text in one file of the cache;
  what an interruption can lose
--shard I/N (Shard): write only the I-th of N shares, I from 0, beside other
  machines that write the others to the same directory; "auto" asks the job: an
  array or the tasks of Slurm, or what `xlflax launch` says
--runner (one of local beam, default local): who writes the shards: processes of
  this machine, or Apache Beam
--beam_options FLAGS: Beam's own flags, such as "--runner=DirectRunner
  --direct_num_workers=8 --direct_running_mode=multi_processing"
[one of]
--overwrite (switch): write the mixture anew, whatever its text, steps or
  vocabulary were
--add (switch): files that came to the text make a new generation of the cache;
  the ones before it can still be read
[]
--task_module MODULE (repeated): importable module that registers tasks; may be
  repeated
--tfds_data_dir DIR: prepared TensorFlow datasets
{json_lines.FLAG}
"""
