"""Retrieval fine-tuning with SentenceTransformerTrainer, on the CPU.

This module is run by `benchmarks.search_finetuning`.
"""

import json
import sys

import datasets
import sentence_transformers
import torch
from sentence_transformers.sentence_transformer import losses
from torch.utils import data

from benchmarks import search_finetuning


def train_model(setting: search_finetuning.Setting, seed: int) -> None:
  """Fine-tunes a SentenceTransformer model on sentence pairs from a file.

  The file is `setting.pairs_file(seed)`. Its pairs are read in order. The model
  and the loss of each step are written to the run's directory.
  """
  torch.set_num_threads(setting.threads)
  dropout = {
    name: setting.dropout
    for name in ('hidden_dropout_prob', 'attention_probs_dropout_prob')
  }
  model = sentence_transformers.SentenceTransformer(
    setting.model, device='cpu', config_kwargs=dropout
  )
  model.max_seq_length = setting.length
  lines = setting.pairs_file(seed).read_text(encoding='utf-8').splitlines()
  columns = zip(*(line.split('\t') for line in lines), strict=True)
  pairs = dict(zip(('anchor', 'positive'), map(list, columns), strict=True))
  folder = setting.folder('sentence-transformers', seed)
  trainer = sentence_transformers.SentenceTransformerTrainer(
    model=model,
    args=sentence_transformers.SentenceTransformerTrainingArguments(
      output_dir=str(folder),
      num_train_epochs=1,
      per_device_train_batch_size=setting.pairs,
      learning_rate=setting.rate,
      warmup_steps=setting.warmup,
      seed=seed,
      batch_sampler=make_sequential_sampler,
      logging_steps=1,
      save_strategy='no',
      report_to='none',
      use_cpu=True,
      disable_tqdm=True,
    ),
    train_dataset=datasets.Dataset.from_dict(pairs),
    loss=losses.MultipleNegativesRankingLoss(model),
  )
  trainer.train()
  model.save(str(folder))
  step_losses = [
    entry['loss'] for entry in trainer.state.log_history if 'loss' in entry
  ]
  (folder / 'losses.json').write_text(json.dumps(step_losses))


def make_sequential_sampler(dataset, batch_size, drop_last, **unused):
  """Returns a batch sampler that keeps the order of the dataset."""
  del unused
  return data.BatchSampler(
    data.SequentialSampler(dataset), batch_size, drop_last
  )


if __name__ == '__main__':
  train_model(
    search_finetuning.Setting(**json.loads(sys.argv[1])), int(sys.argv[2])
  )
