"""Encoders of 2023 to 2026 in their published formats.

More of them are in `released_configs` and `reference_models`.
"""

import json

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers
from transformers.models import gte as gte_lib

from tests.errors import assert_mentions
from tests.interop.huggingface import (
  hard_texts,
  reference_tokenizers,
  released_configs_test,
)
from tests.interop.huggingface import reference_models as reference
from xlflax.interop.huggingface import (
  export_plan,
  folder_writer,
  huggingface_export,
  huggingface_import,
)
from xlflax.models import encoder_config as model_config
from xlflax.training.checkpointing import saved_run
from xlflax.utils import errors

_SIZES = (
  'hidden_size',
  'num_hidden_layers',
  'num_attention_heads',
  'intermediate_size',
)
# xlflax encodes special tokens in texts as characters, unlike transformers.
_PLAIN = [text for text in hard_texts.TEXTS if '<pad>' not in text]
# The published options at a small size; the code is Alibaba-NLP/new-impl.
_GTE = dict(
  architectures=['NewModel', 'NewForTokenClassification'],
  attention_probs_dropout_prob=0.0,
  auto_map={'AutoModel': 'Alibaba-NLP/new-impl--modeling.NewModel'},
  classifier_dropout=0.0,
  hidden_act='gelu',
  hidden_dropout_prob=0.1,
  hidden_size=30,
  id2label={'0': 'LABEL_0'},
  initializer_range=0.02,
  intermediate_size=52,
  label2id={'LABEL_0': 0},
  layer_norm_eps=1e-12,
  layer_norm_type='layer_norm',
  logn_attention_clip1=False,
  logn_attention_scale=False,
  max_position_embeddings=8192,
  model_type='new',
  num_attention_heads=3,
  num_hidden_layers=3,
  pack_qkv=True,
  pad_token_id=1,
  position_embedding_type='rope',
  rope_scaling={'factor': 8.0, 'type': 'ntk'},
  rope_theta=20000,
  torch_dtype='float16',
  transformers_version='4.39.1',
  type_vocab_size=1,
  unpad_inputs=False,
  use_memory_efficient_attention=False,
  vocab_size=reference.VOCAB,
)


def _published_gte(folder):
  """Writes a folder with the published tensor names and returns the model."""
  options = reference.BERT_SIZES | dict(num_attention_heads=3)
  model = transformers.GteModel(transformers.GteConfig(**options))
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for name, parameter in model.named_parameters():
      scale = 'norm' in name.lower() and name.endswith('weight')
      parameter.copy_(
        torch.randn(parameter.shape, generator=generator) * 0.2 + scale
      )
  # The published code multiplies the base by the factor, and all periods by
  # factor^(2 / D).
  places = torch.arange(0, 10, 2) / 10
  periods = (20000 * 8.0) ** places * 8.0 ** (2 / 10)
  model.rotary_emb.inv_freq = 1 / periods
  model.save_pretrained(folder)
  tensors = safetensors.numpy.load_file(folder / 'model.safetensors')
  tensors = {f'new.{name}': value for name, value in tensors.items()}
  tensors['classifier.weight'] = np.ones((1, 30), np.float32)
  tensors['classifier.bias'] = np.ones(1, np.float32)
  safetensors.numpy.save_file(tensors, folder / 'model.safetensors')
  reference.write_tokenizer(folder, reference.VOCAB)
  (folder / 'config.json').write_text(json.dumps(_GTE))
  return model.eval()


def _states(run):
  ids = np.random.default_rng(0).integers(5, reference.VOCAB, (3, 11))
  return ids, run.model.apply(
    {'params': run.restore_params(0)['model']},
    ids,
    segment_ids=reference.PADDING,
    method='encode',
  )


@pytest.mark.slow
def test_published_mgte_equals_transformers(tmp_path):
  """The export has the type of transformers and the same rotary periods."""
  model = _published_gte(tmp_path / 'hf')
  with pytest.raises(errors.CheckpointError) as caught:
    huggingface_import.check_import(tmp_path / 'hf')
  assert 'classifier.weight [1, 30] is not part of' in caught.value.got
  checked = huggingface_import.check_import(
    tmp_path / 'hf', drop=['^classifier']
  )
  run = saved_run.load_run(
    huggingface_import.convert_import(checked, tmp_path / 'ours')
  )
  ids, ours = _states(run)
  model_inputs = {
    'input_ids': torch.tensor(ids),
    'attention_mask': torch.tensor(reference.PADDING),
  }
  with torch.no_grad():
    theirs = model(**model_inputs).last_hidden_state.numpy()
  is_token = reference.PADDING > 0
  np.testing.assert_allclose(
    np.asarray(ours)[is_token], theirs[is_token], atol=2e-5, rtol=2e-5
  )
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  back = transformers.AutoModel.from_pretrained(tmp_path / 'back')
  assert isinstance(back, gte_lib.GteModel)
  with torch.no_grad():
    again = back(**model_inputs).last_hidden_state.numpy()
  np.testing.assert_allclose(
    again[is_token], theirs[is_token], atol=2e-5, rtol=2e-5
  )
  tensors = safetensors.numpy.load_file(tmp_path / 'back/model.safetensors')
  for name, value in model.state_dict().items():
    if name.startswith('embeddings.'):
      np.testing.assert_array_equal(tensors[name], value.numpy())


@pytest.mark.parametrize(
  ('changes', 'part'),
  [
    (
      {'rope_scaling': {'factor': 8.0, 'type': 'ntk', 'mixed_b': 0.7}},
      'rope_scaling is',
    ),
    ({'logn_attention_scale': True}, 'logn_attention_scale is True'),
    ({'layer_norm_type': 'rms_norm'}, "layer_norm_type is 'rms_norm'"),
  ],
)
def test_unsupported_options_of_mgte_are_rejected(changes, part, tmp_path):
  _published_gte(tmp_path / 'hf')
  (tmp_path / 'hf/config.json').write_text(json.dumps(_GTE | changes))
  with pytest.raises(errors.ConfigError) as caught:
    huggingface_import.check_import(tmp_path / 'hf', drop=['^classifier'])
  assert part in caught.value.got


@pytest.mark.slow
def test_nomic_with_legacy_options(tmp_path):
  """The export has the legacy options, which transformers does not read."""
  model = released_configs_test.published(
    'nomic-embed-text-v1.5', tmp_path / 'hf'
  )
  path = tmp_path / 'hf/config.json'
  options = json.loads(path.read_text())
  for name in ('max_position_embeddings', 'rope_parameters', *_SIZES):
    options.pop(name)
  path.write_text(json.dumps(options))
  checked = huggingface_import.check_import(tmp_path / 'hf')
  assert checked.config.max_position_embeddings == 8192
  run = saved_run.load_run(
    huggingface_import.convert_import(checked, tmp_path / 'ours')
  )
  ids, ours = _states(run)
  with torch.no_grad():
    theirs = model(
      input_ids=torch.tensor(ids),
      attention_mask=torch.tensor(reference.PADDING),
    ).last_hidden_state.numpy()
  is_token = reference.PADDING > 0
  np.testing.assert_allclose(
    np.asarray(ours)[is_token], theirs[is_token], atol=2e-5, rtol=2e-5
  )
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  config = json.loads((tmp_path / 'back/config.json').read_text())
  del options['torch_dtype']  # The export writes it as dtype.
  assert config == config | options
  files = [
    safetensors.numpy.load_file(tmp_path / f'{folder_name}/model.safetensors')
    for folder_name in ('hf', 'back')
  ]
  assert files[0].keys() == files[1].keys()
  assert all(np.array_equal(files[0][k], files[1][k]) for k in files[0])


_JINA = dict(
  reference.BERT_SIZES,
  architectures=['XLMRobertaModel'],
  auto_map={'AutoModel': 'xlm-roberta-flash--modeling_lora.XLMRobertaLoRA'},
  load_trained_adapters=True,
  lora_adaptations=['retrieval.query', 'retrieval.passage', 'text-matching'],
  lora_alpha=1,
  lora_rank=4,
  model_type='xlm-roberta',
  position_embedding_type='rotary',
  rotary_emb_base=20000.0,
  use_flash_attn=True,
)
_NOMIC_MOE = dict(
  activation_function='gelu',
  architectures=['NomicBertModel'],
  model_type='nomic_bert',
  moe_every_n_layers=2,
  moe_top_k=2,
  n_embd=30,
  n_head=3,
  n_layer=2,
  num_experts=8,
  qkv_proj_bias=True,
)


@pytest.mark.parametrize(
  ('options', 'name', 'fix'),
  [
    (_JINA, 'lora_adaptations', 'v3-hf'),
    (_NOMIC_MOE, 'moe_every_n_layers', 'v1.5'),
  ],
  ids=['jina-embeddings-v3', 'nomic-embed-text-v2-moe'],
)
def test_unsupported_models_are_rejected_with_an_alternative(
  options, name, fix, tmp_path
):
  """The models also have custom Sentence-Transformers modules."""
  safetensors.numpy.save_file(
    {'emb_ln.weight': np.ones(30, np.float32)}, tmp_path / 'model.safetensors'
  )
  (tmp_path / 'config.json').write_text(json.dumps(options))
  modules = [{'idx': 0, 'name': '0', 'path': '', 'type': 'custom_st.Own'}]
  (tmp_path / 'modules.json').write_text(json.dumps(modules))
  with pytest.raises(errors.ConfigError) as caught:
    huggingface_import.check_import(tmp_path)
  assert_mentions(caught.value.what, name)
  assert caught.value.got == options[name]
  assert fix in caught.value.fix


@pytest.mark.parametrize('kind', ['T5GemmaEncoderModel', 'T5Gemma2Encoder'])
def test_t5_gemma_is_rejected(kind, tmp_path):
  if kind == 'T5GemmaEncoderModel':
    sizes = dict(
      vocab_size=61,
      hidden_size=16,
      intermediate_size=20,
      num_hidden_layers=1,
      num_attention_heads=2,
      num_key_value_heads=1,
      head_dim=8,
    )
    config = transformers.T5GemmaConfig(
      encoder=sizes, decoder=sizes, is_encoder_decoder=False
    )
    transformers.T5GemmaEncoderModel(config).save_pretrained(tmp_path)
  else:
    (tmp_path / 'config.json').write_text('{"model_type": "t5gemma2"}')
  with pytest.raises(errors.ConfigError) as caught:
    huggingface_import.check_import(tmp_path)
  assert caught.value.got.startswith('t5gemma')
  assert_mentions(caught.value.what, 'model_type')
  assert 'mmBERT' in caught.value.fix


@pytest.mark.slow
def test_byt5_without_vocabulary_files(tmp_path):
  """The token ids are bytes, followed by sentinels."""
  theirs = transformers.ByT5Tokenizer()
  config = transformers.T5Config(
    vocab_size=384,
    d_model=24,
    d_kv=8,
    d_ff=20,
    num_layers=2,
    num_decoder_layers=1,
    num_heads=3,
    feed_forward_proj='gated-gelu',
    tie_word_embeddings=False,
  )
  torch.manual_seed(0)
  model = transformers.T5ForConditionalGeneration(config).eval()
  model.save_pretrained(tmp_path / 'hf')
  theirs.save_pretrained(tmp_path / 'hf')
  run = saved_run.load_run(
    huggingface_import.convert_import(
      huggingface_import.check_import(tmp_path / 'hf'), tmp_path / 'ours'
    )
  )
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  back = transformers.AutoTokenizer.from_pretrained(tmp_path / 'back')
  for text in _PLAIN:
    want = theirs.encode(text, add_special_tokens=False)
    assert list(run.vocabulary.encode(text)) == want
    assert back.encode(text, add_special_tokens=False) == want
    assert run.vocabulary.decode(want) == text
  sentinels = [theirs.convert_tokens_to_ids(f'<extra_id_{i}>') for i in (0, 9)]
  assert [run.vocabulary.spec.sentinel_ids[i] for i in (0, 9)] == sentinels
  again = safetensors.numpy.load_file(tmp_path / 'back/model.safetensors')
  first = safetensors.numpy.load_file(tmp_path / 'hf/model.safetensors')
  assert all(np.array_equal(again[key], first[key]) for key in first)


def _spm(folder):
  """Trains a model like that of DeBERTa-v3, without a mask token."""
  return reference_tokenizers.sentencepiece(
    folder,
    'spm.model',
    pad_id=0,
    bos_id=1,
    eos_id=2,
    unk_id=3,
    pad_piece='[PAD]',
    bos_piece='[CLS]',
    eos_piece='[SEP]',
    unk_piece='[UNK]',
  )


@pytest.mark.slow
def test_mdeberta_with_only_an_spm_model(tmp_path):
  """The folder has the published files; the model defines normalization."""
  (tmp_path / 'hf').mkdir()
  model = _spm(tmp_path / 'hf')
  size = model.get_piece_size() + 1
  _, config, options = reference.MASKED_LMS['deberta']
  options = options | dict(vocab_size=size + 3)
  masked_lm = transformers.DebertaV2ForMaskedLM(
    getattr(transformers, config)(**options)
  )
  masked_lm.save_pretrained(tmp_path / 'hf')
  with pytest.raises(errors.VocabularyError) as caught:
    huggingface_import.check_import(tmp_path / 'hf')
  assert '--unused_embeddings=keep' in caught.value.fix
  checked = huggingface_import.check_import(tmp_path / 'hf', unused_rows='keep')
  run = saved_run.load_run(
    huggingface_import.convert_import(checked, tmp_path / 'ours')
  )
  spec = run.vocabulary.spec
  assert run.vocabulary.piece(spec.mask_id) == '[MASK]'
  assert spec.mask_id == size - 1
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  back = transformers.AutoTokenizer.from_pretrained(tmp_path / 'back')
  back.backend_tokenizer.encode_special_tokens = True
  for text in _PLAIN:
    want = model.encode(text)
    assert list(run.vocabulary.encode(text)) == want, ascii(text)
    assert back.encode(text, add_special_tokens=False) == want, ascii(text)
  cat, dog = model.encode('cat'), model.encode('dog')
  cls, sep = spec.bos_id, spec.eos_id
  assert back.encode('cat', 'dog') == [cls, *cat, sep, *dog, sep]


@pytest.mark.slow
def test_xlm_v_and_glot500_with_only_a_sentencepiece_model(tmp_path):
  """Their vocabularies are larger than that of XLM-R with the same layout."""
  (tmp_path / 'hf').mkdir()
  theirs = reference_tokenizers.xlmr(tmp_path / 'hf')
  for name in ('tokenizer.json', 'tokenizer_config.json'):
    (tmp_path / 'hf' / name).unlink(missing_ok=True)
  options = reference.BERT_SIZES | dict(
    vocab_size=len(theirs), max_position_embeddings=18, type_vocab_size=1
  )
  transformers.XLMRobertaForMaskedLM(
    transformers.XLMRobertaConfig(**options)
  ).save_pretrained(tmp_path / 'hf')
  checked = huggingface_import.check_import(tmp_path / 'hf')
  run = saved_run.load_run(
    huggingface_import.convert_import(checked, tmp_path / 'ours')
  )
  folder_writer.write_folder(
    huggingface_export.check_export(run.directory), tmp_path / 'back'
  )
  back = transformers.AutoTokenizer.from_pretrained(tmp_path / 'back')
  back.backend_tokenizer.encode_special_tokens = True
  for text in _PLAIN:
    want = list(run.vocabulary.encode(text))
    assert back.encode(text, add_special_tokens=False) == want, ascii(text)


@pytest.mark.parametrize(
  ('fields', 'expected_config'),
  [
    ({}, 'jina_embeddings_v3'),
    (dict(rope_scaling_factor=2.0, type_vocab_size=0), 'jina_embeddings_v3'),
    (dict(gated_mlp=True, mlp_bias=False, mlp_output_bias=True), 'gte'),
    (dict(gated_mlp=True, mlp_bias=False, attention_bias=False), 'nomic_bert'),
    (dict(gated_mlp=True), 'nothing'),
    (dict(position_embedding='learned', mlp_output_bias=False), 'nothing'),
  ],
)
def test_export_type_of_rotary_encoders(fields, expected_config):
  config = model_config.EncoderConfig(
    **dict(
      hidden_dim=16,
      mlp_dim=20,
      num_heads=2,
      num_layers=2,
      position_embedding='rotary',
    )
    | fields
  )
  assert (
    export_plan.find_export_type(config, pad_id=0).partition(':')[0]
    == expected_config
  )
