"""Published config.json files with small sizes.

The keys, and all values except sizes, are those of the published files.
`SOURCES` contains a public copy of each file.
"""

_SIZES = dict(
  vocab_size=61,
  hidden_size=24,
  num_hidden_layers=2,
  num_attention_heads=3,
  intermediate_size=40,
)
_DROPOUT = dict(attention_probs_dropout_prob=0.1, hidden_dropout_prob=0.1)
_XLMR = (
  _SIZES
  | _DROPOUT
  | dict(
    architectures=['XLMRobertaForMaskedLM'],
    bos_token_id=0,
    eos_token_id=2,
    hidden_act='gelu',
    initializer_range=0.02,
    layer_norm_eps=1e-05,
    max_position_embeddings=514,
    model_type='xlm-roberta',
    output_past=True,
    pad_token_id=1,
    position_embedding_type='absolute',
    transformers_version='4.17.0.dev0',
    type_vocab_size=1,
    use_cache=True,
  )
)
_ROBERTA = (
  _SIZES
  | _DROPOUT
  | dict(
    architectures=['RobertaForMaskedLM'],
    bos_token_id=0,
    eos_token_id=2,
    hidden_act='gelu',
    initializer_range=0.02,
    layer_norm_eps=1e-05,
    max_position_embeddings=514,
    model_type='roberta',
    pad_token_id=1,
    type_vocab_size=1,
  )
)
_POOLER = dict(
  directionality='bidi',
  pooler_fc_size=768,
  pooler_num_attention_heads=12,
  pooler_num_fc_layers=3,
  pooler_size_per_head=128,
  pooler_type='first_token_transform',
)
_BERT = (
  _SIZES
  | _DROPOUT
  | _POOLER
  | dict(
    architectures=['BertForMaskedLM'],
    classifier_dropout=None,
    hidden_act='gelu',
    initializer_range=0.02,
    layer_norm_eps=1e-12,
    max_position_embeddings=512,
    model_type='bert',
    pad_token_id=0,
    position_embedding_type='absolute',
    transformers_version='4.25.1',
    type_vocab_size=2,
    use_cache=True,
  )
)
_XLM = dict(
  architectures=['XLMWithLMHeadModel'],
  asm=False,
  asm_cutoffs=[8000, 20000],
  asm_div_value=4,
  attention_dropout=0.1,
  bos_index=0,
  causal=False,
  dropout=0.1,
  emb_dim=24,
  embed_init_std=0.02209708691207961,
  end_n_top=5,
  eos_index=1,
  finetuning_task=None,
  gelu_activation=True,
  init_std=0.02,
  is_decoder=False,
  is_encoder=True,
  lang_id=1,
  layer_norm_eps=1e-12,
  mask_index=5,
  max_position_embeddings=512,
  max_vocab=-1,
  min_count=0,
  model_type='xlm',
  n_heads=3,
  n_layers=2,
  n_words=61,
  num_labels=2,
  output_attentions=False,
  output_hidden_states=False,
  pad_index=2,
  pad_token_id=2,
  pruned_heads={},
  same_enc_dec=True,
  share_inout_emb=True,
  sinusoidal_embeddings=False,
  start_n_top=5,
  summary_activation=None,
  summary_first_dropout=0.1,
  summary_proj_to_labels=True,
  summary_type='first',
  summary_use_proj=True,
  torchscript=False,
  unk_index=3,
  use_bfloat16=False,
)
_T5 = dict(
  d_ff=40,
  d_kv=8,
  d_model=24,
  decoder_start_token_id=0,
  dropout_rate=0.1,
  eos_token_id=1,
  initializer_factor=1.0,
  is_encoder_decoder=True,
  layer_norm_epsilon=1e-06,
  num_heads=3,
  num_layers=2,
  output_past=True,
  pad_token_id=0,
  relative_attention_num_buckets=32,
  vocab_size=61,
)
_MT5 = _T5 | dict(
  architectures=['MT5ForConditionalGeneration'],
  feed_forward_proj='gated-gelu',
  model_type='mt5',
  num_decoder_layers=2,
  tie_word_embeddings=False,
  tokenizer_class='T5Tokenizer',
  transformers_version='4.10.0.dev0',
  use_cache=True,
)
_SEQ2SEQ = dict(
  bos_token_id=0,
  d_model=24,
  decoder_attention_heads=3,
  decoder_ffn_dim=40,
  decoder_layerdrop=0,
  decoder_layers=2,
  decoder_start_token_id=2,
  dropout=0.1,
  encoder_attention_heads=3,
  encoder_ffn_dim=40,
  encoder_layerdrop=0,
  encoder_layers=2,
  eos_token_id=2,
  init_std=0.02,
  is_encoder_decoder=True,
  max_length=200,
  max_position_embeddings=64,
  num_hidden_layers=2,
  pad_token_id=1,
  scale_embedding=True,
  use_cache=True,
  vocab_size=61,
)
_MODERN = (
  _SIZES
  | _DROPOUT
  | dict(
    architectures=['ModernBertForMaskedLM'],
    attention_bias=False,
    attention_dropout=0.0,
    bos_token_id=3,
    classifier_activation='gelu',
    classifier_bias=False,
    classifier_dropout=0.0,
    classifier_pooling='mean',
    cls_token_id=3,
    decoder_bias=True,
    deterministic_flash_attn=False,
    embedding_dropout=0.0,
    eos_token_id=4,
    global_attn_every_n_layers=3,
    global_rope_theta=160000.0,
    gradient_checkpointing=False,
    hidden_activation='gelu',
    initializer_cutoff_factor=2.0,
    initializer_range=0.02,
    layer_norm_eps=1e-05,
    local_attention=128,
    local_rope_theta=10000.0,
    max_position_embeddings=8192,
    mlp_bias=False,
    mlp_dropout=0.0,
    model_type='modernbert',
    norm_bias=False,
    norm_eps=1e-05,
    pad_token_id=2,
    position_embedding_type='absolute',
    reference_compile=None,
    repad_logits_with_grad=False,
    sep_token_id=4,
    sparse_pred_ignore_index=-100,
    sparse_prediction=False,
    torch_dtype='float32',
    transformers_version='4.47.0.dev0',
  )
)
for _key in _DROPOUT:
  del _MODERN[_key]

_BART = dict(
  _name_or_path='bart',
  activation_dropout=0.1,
  activation_function='gelu',
  add_bias_logits=False,
  add_final_layer_norm=False,
  attention_dropout=0.1,
  bos_token_id=0,
  classif_dropout=0.1,
  classifier_dropout=0.0,
  d_model=24,
  decoder_attention_heads=4,
  decoder_ffn_dim=36,
  decoder_layerdrop=0.0,
  decoder_layers=2,
  decoder_start_token_id=2,
  dropout=0.1,
  early_stopping=True,
  encoder_attention_heads=4,
  encoder_ffn_dim=36,
  encoder_layerdrop=0.0,
  encoder_layers=2,
  eos_token_id=2,
  forced_eos_token_id=2,
  gradient_checkpointing=False,
  id2label={'0': 'LABEL_0', '1': 'LABEL_1', '2': 'LABEL_2'},
  init_std=0.02,
  is_encoder_decoder=True,
  label2id={'LABEL_0': 0, 'LABEL_1': 1, 'LABEL_2': 2},
  max_position_embeddings=16,
  model_type='bart',
  no_repeat_ngram_size=3,
  normalize_before=False,
  normalize_embedding=True,
  num_beams=4,
  num_hidden_layers=2,
  pad_token_id=1,
  scale_embedding=False,
  torch_dtype='float32',
  use_cache=True,
  vocab_size=61,
)
# Options of the original code of the model, and those of transformers.
_NOMIC = _SIZES | dict(
  activation_function='swiglu',
  architectures=['NomicBertModel'],
  attn_pdrop=0.0,
  auto_map={'AutoModel': 'nomic-bert-2048--modeling.NomicBertModel'},
  bos_token_id=None,
  causal=False,
  dense_seq_output=True,
  embd_pdrop=0.0,
  eos_token_id=None,
  fused_bias_fc=True,
  fused_dropout_add_ln=True,
  initializer_range=0.02,
  layer_norm_epsilon=1e-12,
  max_position_embeddings=2048,
  max_trained_positions=2048,
  mlp_fc1_bias=False,
  mlp_fc2_bias=False,
  model_type='nomic_bert',
  n_embd=24,
  n_head=3,
  n_inner=40,
  n_layer=2,
  n_positions=8192,
  pad_vocab_size_multiple=64,
  parallel_block=False,
  parallel_block_tied_norm=False,
  prenorm=False,
  qkv_proj_bias=False,
  reorder_and_upcast_attn=False,
  resid_pdrop=0.0,
  rope_parameters=dict(rope_theta=1000.0, rope_type='default'),
  rotary_emb_base=1000,
  rotary_emb_fraction=1.0,
  rotary_emb_interleaved=False,
  rotary_emb_scale_base=None,
  rotary_scaling_factor=None,
  scale_attn_by_inverse_layer_idx=False,
  scale_attn_weights=True,
  summary_activation=None,
  summary_first_dropout=0.0,
  summary_proj_to_labels=True,
  summary_type='cls_index',
  summary_use_proj=True,
  torch_dtype='float32',
  transformers_version='4.34.0',
  type_vocab_size=2,
  use_cache=True,
  use_flash_attn=True,
  use_rms_norm=False,
  use_xentropy=True,
)
CONFIGS = {
  'xlm-roberta-base': _XLMR,
  'xlm-roberta-large': _XLMR | dict(num_hidden_layers=3),
  'xlm-roberta-xl': _XLMR
  | dict(
    architectures=['XLMRobertaXLForMaskedLM'],
    classifier_dropout=None,
    model_type='xlm-roberta-xl',
    tokenizer_class='XLMRobertaTokenizer',
    torch_dtype='float32',
  ),
  'bert-base-multilingual-cased': _BERT,
  'roberta-base': _ROBERTA
  | dict(
    finetuning_task=None,
    num_labels=2,
    output_attentions=False,
    output_hidden_states=False,
    output_past=True,
    pruned_heads={},
    torchscript=False,
    use_bfloat16=False,
  ),
  'roberta-large': _ROBERTA,
  'xlm-mlm-100-1280': _XLM | dict(n_langs=100, use_lang_emb=False),
  'xlm-mlm-tlm-xnli15-1024': _XLM
  | dict(
    id2lang={'0': 'ar', '1': 'en', '2': 'zh'},
    lang2id={'ar': 0, 'en': 1, 'zh': 2},
    n_langs=3,
    use_lang_emb=True,
  ),
  'mt5-base': _MT5,
  'umt5-base': _MT5
  | dict(
    architectures=['UMT5ForConditionalGeneration'],
    classifier_dropout=0.0,
    dense_act_fn='gelu_new',
    is_gated_act=True,
    model_type='umt5',
    relative_attention_max_distance=128,
    scalable_attention=True,
    torch_dtype='float32',
  ),
  't5-base': _T5
  | dict(
    architectures=['T5ForConditionalGeneration'],
    model_type='t5',
    n_positions=512,
    task_specific_params={
      'translation_en_to_de': {
        'early_stopping': True,
        'max_length': 300,
        'num_beams': 4,
        'prefix': 'translate English to German: ',
      }
    },
  ),
  'mbart-large-50': _SEQ2SEQ
  | dict(
    _num_labels=3,
    activation_dropout=0.0,
    activation_function='gelu',
    add_bias_logits=False,
    add_final_layer_norm=True,
    architectures=['MBartForConditionalGeneration'],
    attention_dropout=0.0,
    classif_dropout=0.0,
    classifier_dropout=0.0,
    early_stopping=True,
    forced_eos_token_id=2,
    gradient_checkpointing=False,
    id2label={'0': 'LABEL_0', '1': 'LABEL_1', '2': 'LABEL_2'},
    label2id={'LABEL_0': 0, 'LABEL_1': 1, 'LABEL_2': 2},
    model_type='mbart',
    normalize_before=True,
    normalize_embedding=True,
    num_beams=5,
    output_past=True,
    static_position_embeddings=False,
    tokenizer_class='MBart50Tokenizer',
    transformers_version='4.4.0.dev0',
  ),
  'bart-base': _BART
  | dict(
    architectures=['BartModel'],
    forced_bos_token_id=0,
    transformers_version='4.12.0.dev0',
  ),
  'bart-large-cnn': _BART
  | dict(
    _num_labels=3,
    architectures=['BartForConditionalGeneration'],
    extra_pos_embeddings=2,
    force_bos_token_to_be_generated=True,
    length_penalty=2.0,
    max_length=142,
    min_length=56,
    output_past=True,
    prefix=' ',
    static_position_embeddings=False,
    transformers_version='4.7.0.dev0',
  ),
  'mmBERT-base': {k: v for k, v in _MODERN.items() if k != 'reference_compile'}
  | dict(
    bos_token_id=2,
    cls_token_id=1,
    eos_token_id=1,
    global_rope_theta=160000,
    local_rope_theta=160000,
    mask_token_id=4,
    pad_token_id=0,
    position_embedding_type='sans_pos',
    sep_token_id=1,
    transformers_version='4.48.0',
  ),
  'EuroBERT-210m': _SIZES
  | dict(
    architectures=['EuroBertForMaskedLM'],
    attention_bias=False,
    attention_dropout=0.0,
    auto_map={'AutoModel': 'modeling_eurobert.EuroBertModel'},
    bos_token='<|begin_of_text|>',
    bos_token_id=3,
    eos_token='<|end_of_text|>',
    eos_token_id=4,
    hidden_act='silu',
    hidden_dropout=0.0,
    initializer_range=0.02,
    is_decoder=False,
    mask_token='<|mask|>',
    mask_token_id=2,
    max_position_embeddings=8192,
    mlp_bias=False,
    model_type='eurobert',
    num_key_value_heads=3,
    pad_token='<|end_of_text|>',
    pad_token_id=4,
    pretraining_tp=1,
    rms_norm_eps=1e-05,
    rope_scaling=None,
    rope_theta=250000,
    tie_word_embeddings=False,
    torch_dtype='bfloat16',
    transformers_version='4.40.0.dev0',
    use_cache=False,
  ),
  'LaBSE': _BERT
  | dict(architectures=['BertModel'], gradient_checkpointing=False),
  'multilingual-e5-base': _XLMR
  | dict(
    architectures=['XLMRobertaModel'],
    classifier_dropout=None,
    torch_dtype='float32',
  ),
  'bge-m3': _XLMR
  | dict(
    _name_or_path='',
    architectures=['XLMRobertaModel'],
    classifier_dropout=None,
    max_position_embeddings=8194,
    torch_dtype='float32',
  ),
  'ModernBERT-base': _MODERN,
  'distilbert-base-multilingual-cased': dict(
    activation='gelu',
    architectures=['DistilBertForMaskedLM'],
    attention_dropout=0.1,
    dim=24,
    dropout=0.1,
    hidden_dim=40,
    initializer_range=0.02,
    max_position_embeddings=512,
    model_type='distilbert',
    n_heads=3,
    n_layers=2,
    output_past=True,
    pad_token_id=0,
    qa_dropout=0.1,
    seq_classif_dropout=0.2,
    sinusoidal_pos_embds=False,
    tie_weights_=True,
    transformers_version='4.10.0.dev0',
    vocab_size=61,
  ),
  'mdeberta-v3-base': _SIZES
  | _DROPOUT
  | dict(
    hidden_act='gelu',
    initializer_range=0.02,
    layer_norm_eps=1e-07,
    max_position_embeddings=512,
    max_relative_positions=-1,
    model_type='deberta-v2',
    norm_rel_ebd='layer_norm',
    pooler_dropout=0,
    pooler_hidden_act='gelu',
    pooler_hidden_size=24,
    pos_att_type='p2c|c2p',
    position_biased_input=False,
    position_buckets=4,
    relative_attention=True,
    share_att_key=True,
    type_vocab_size=0,
  ),
  'nllb-200-distilled-600M': _SEQ2SEQ
  | dict(
    activation_dropout=0.0,
    activation_function='relu',
    architectures=['M2M100ForConditionalGeneration'],
    attention_dropout=0.1,
    model_type='m2m_100',
    tokenizer_class='NllbTokenizer',
    torch_dtype='float32',
    transformers_version='4.21.0.dev0',
  ),
  'byt5-small': _T5
  | dict(
    architectures=['T5ForConditionalGeneration'],
    feed_forward_proj='gated-gelu',
    gradient_checkpointing=False,
    model_type='t5',
    tie_word_embeddings=False,
    tokenizer_class='ByT5Tokenizer',
    transformers_version='4.7.0.dev0',
  ),
  'xlm-v-base': _XLMR | dict(classifier_dropout=None, torch_dtype='float32'),
  'glot500-base': _XLMR
  | dict(
    _name_or_path='xlm-roberta-base',
    classifier_dropout=None,
    torch_dtype='float32',
  ),
  'nomic-embed-text-v1.5': _NOMIC,
}

# GitHub repositories and the files in them. A copy may lack or have keys that
# another version of transformers writes. If no copy was found, the entry
# describes the origin of the keys.
_T5_COPY = 'bystrowska/idiom-paraphrasing: models/t5-base/config.json'
_ROBERTA_COPY = 'huanyuai/FKT-KE: models/roberta-base/config.json'
SOURCES = {
  'bart-base': 'not found; keys from memory of the published file',
  'bart-large-cnn': 'not found; keys from memory of the published file, some '
  'in a test of a Rust port that quotes them',
  'xlm-roberta-base': 'Hexdigest123/comment-checker: '
  'model/xlm-roberta-base/config.json (with a classifier)',
  'xlm-roberta-large': 'not found; printed in a fork of TransQuest, with the '
  'keys of xlm-roberta-base',
  'byt5-small': 'lines of a loader of text encoders that quotes it whole',
  'xlm-v-base': 'not found; the keys of xlm-roberta-base, as its paper has its '
  'architecture',
  'glot500-base': 'not found; as xlm-v-base',
  'nomic-embed-text-v1.5': 'not found; vllm-project/vllm: issue 40130 and a '
  'test of a Rust server quote most of it, the rest from memory',
  'xlm-roberta-xl': 'huggingface/transformers: src/transformers/models/'
  'xlm_roberta_xl/configuration_xlm_roberta_xl.py (not the file itself)',
  'bert-base-multilingual-cased': 'clap-esp/clap-ai-core: '
  'models/bert-base-multilingual-cased/config.json (with a classifier)',
  'roberta-base': f'{_ROBERTA_COPY}; the keys of the first release, such as '
  "finetuning_task, are those of transformers' configurations of 2019",
  'roberta-large': 'skyhuang233/Easyrec: model/roberta-large/config.json (of a '
  'class of its own)',
  'xlm-mlm-100-1280': 'PaddlePaddle/PaddleNLP: paddlenlp/transformers/xlm/'
  "configuration.py, the values; the keys are those of transformers' "
  'conversion, which keeps all parameters of XLM',
  'xlm-mlm-tlm-xnli15-1024': 'as xlm-mlm-100-1280',
  'mt5-base': 'the published file, quoted whole in public code (a load_config '
  'of mt5-base alone, and comments of two rewrites of mT5 in torch)',
  'umt5-base': 'not found; text_encoder_config of an audio model that holds '
  'google/umt5-base',
  't5-base': _T5_COPY,
  'mbart-large-50': 'not found; facebook/mbart-large-cc25 in a script that '
  'trims it, with the options of mBART-50',
  'mmBERT-base': "not found; ModernBERT's keys, with the values that "
  'runtimes recognise mmBERT by (sans_pos, 256,000 tokens)',
  'EuroBERT-210m': 'lgcharpe/EuroBERT: optimus/modeling/conversion.py, '
  "EuroBERT's conversion script",
  'LaBSE': 'pamudu-pankaja/study-mate: models/LaBSE/config.json',
  'multilingual-e5-base': 'Gomez12/OpenTeddy: '
  'models/multilingual-e5-base/config.json',
  'bge-m3': 'vminh16/VI-Legal-RAG: models/bge-m3/config.json',
  'distilbert-base-multilingual-cased': 'AbrJA/Transformers.jl: '
  'src/models/DistilBert/config.jl (not the file itself)',
  'mdeberta-v3-base': 'not found; the published file names no class',
  'nllb-200-distilled-600M': 'Higasa-Yumetaka/PyVoiceTranslate: '
  'nllb-200-distilled-600M/config.json',
  'ModernBERT-base': 'jiahuanluo/LLM-Factory: models/modernbert/config.json '
  '(of ModernBERT-large) and svihuralukas/PAN26-generated-text-detection: '
  'models/modernbert/config.json (as transformers 5 writes it)',
}
