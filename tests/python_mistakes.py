"""Calls from Python that are wrong, and what each is told; see the test."""

# Call -> parts of the message.
MISTAKES: dict[str, tuple[str, ...]] = {
  # Opening a run.
  'xlflax.open_run()': ('open_run lacks an argument', 'model_dir'),
  'xlflax.open_run(3)': ('model_dir', 'Got: 3 (int)', 'a path'),
  'xlflax.open_run(None)': ('model_dir', 'None'),
  'xlflax.open_run("nowhere")': ('nowhere',),
  'xlflax.open_run(DIR, stpe=10)': ('Got: stpe', 'did you mean step?'),
  'xlflax.open_run(DIR, 10)': ('without names', 'step=…'),
  'xlflax.open_run(DIR, step=1.5)': ('open_run.step', '1.5', 'whole number'),
  'xlflax.open_run(DIR, step="newest")': ("'newest'", "'last', 'best'"),
  'xlflax.open_run(DIR, step="10")': ("'10'", 'step=10'),
  'xlflax.open_run(DIR, step=None)': ('open_run.step', 'None'),
  'xlflax.open_run(DIR, step=-1)': ('-1', '10, 20'),
  'xlflax.open_run(DIR, seed="0")': ('open_run.seed', 'without quotes'),
  'xlflax.open_run(DIR, partitioner="data")': ('partitioner', 'Partitioner'),
  'run.at("latest")': ("'latest'", "'last'"),
  'run.at()': ('Run.at lacks an argument', 'step'),
  'run.params("nwe")': ("'nwe'", 'untrained'),
  'run.params([10])': ('Run.params.step', '[10]'),
  'run.subject(batch_size=0)': ('batch_size', '0', 'at least 1'),
  # Encoding.
  'run.encode("Hund", languages="de")': ('texts', "'Hund'", 'into a list'),
  'run.encode([None], languages="de")': ('Run.encode.texts, at [0]', 'None'),
  'run.encode(["a", 3], languages="de")': ('texts, at [1]', 'Got: 3 (int)'),
  'run.encode(None)': ('Run.encode.texts', 'None'),
  'run.encode([["Hund"]], languages="de")': ('texts, at [0]', 'text'),
  'run.encode({"Hund": "de"})': ('Run.encode.texts', 'a list'),
  'run.encode(["Hund"])': ('languages do not fit', 'one code'),
  'run.encode(["Hund"], languages=["de", "en"])': ('2 for 1 texts',),
  'run.encode(["Hund"], languages=3)': ('Run.encode.languages', '3 (int)'),
  'run.encode(["Hund"], languages=[None])': ('languages, at [0]', 'None'),
  'run.encode(["Hund"], languages="dee")': ('dee', 'did you mean de?'),
  'run.encode(["Hund"], "de")': ('without names', 'languages=…'),
  'run.encode(["Hund"], language="de")': ('mean languages',),
  'run.encode(["Hund"], languages="de", layer=3)': ('Got: 3', '0 (emb'),
  'run.encode(["Hund"], languages="de", layer=1.5)': ('layer', '1.5'),
  'run.encode(["Hund"], languages="de", layer="first")': ("'last'", 'first'),
  'run.encode(["Hund"], languages="de", pooling="maen")': (
    'pooling', 'did you mean mean?'),
  'run.encode(["Hund"], languages="de", pooling=1)': ('pooling', '1 (int)'),
  'run.encode(["Hund"], languages="de", max_length=0)': ('max_length', '0'),
  'run.encode(["Hund"], languages="de", max_length=2)': ('max_length', '2'),
  'run.encode(["Hund"], languages="de", batch_size=0)': ('batch_size', '0'),
  'run.encode(["Hund"], languages="de", batch_size="8")': (
    'batch_size', 'without quotes: 8'),
  'run.encode_layers("Hund")': ('Run.encode_layers.texts', 'into a list'),
  'run.encode_layers(["Hund"], languages="de", layer=1)': ('no argument layer',),
  # Evaluating.
  'run.evaluate(TASK)': ('Run.evaluate.tasks', 'into a list'),
  'run.evaluate([])': ('no task to evaluate',),
  'run.evaluate(["retrieval"])': ('tasks, at [0]', 'EvalTask'),
  'run.evaluate([evaluation.Retrieval])': ('make one: Retrieval(...)',),
  'run.evaluate([TASK, TASK])': ('same name',),
  'run.evaluate({"retrieval": TASK})': ('Run.evaluate.tasks', 'a list'),
  'evaluate.evaluate(TASK)': ('without names', 'model_dir='),
  'evaluate.evaluate(model_dir=run, tasks=[TASK])': ('model_dir', 'a path'),
  'evaluate.evaluate(model_dir=DIR)': ('lacks', 'tasks'),
  'evaluate.evaluate(model_dir=DIR, tasks=[TASK], steps="first")': (
    'first', 'last, all'),
  'evaluate.evaluate(model_dir=DIR, tasks=[TASK], steps=10)': (
    'steps', '10', 'into a list'),
  'evaluate.evaluate(model_dir=DIR, tasks=[TASK], steps=["10"])': (
    'steps, at [0]', "'10'"),
  'evaluate.evaluate(model_dir=DIR, tasks=[TASK], poll_seconds=-1)': (
    'poll_seconds', 'at least 0'),
  # Translating.
  'run.translate(["Hund"], source="de", target="en")': (
    'Only an encoder-decoder',),
  'translator.translate("the dog", source="en", target="de")': (
    'Run.translate.texts', 'into a list'),
  'translator.translate(["the dog"], source="en")': ('lacks', 'target'),
  'translator.translate(["the dog"], source="en", target="dee")': (
    'dee', 'did you mean de?'),
  'translator.translate(["the dog"], source="en", target=["de"])': (
    'Run.translate.target', 'text'),
  'translator.translate([None], source="en", target="de")': ('texts, at [0]',),
  'translator.translate(["a"], source="en", target="de", beam_size=0)': (
    'beam_size', 'Got: 0'),
  'translator.translate(["a"], source="en", target="de", beams=2)': (
    'mean beam_size',),
  'translate.open_translator(model_dir=DIR, source="en")': ('lacks', 'target'),
  'translate.open_translator(model_dir=COPIER, source="en", target="de", '
  'step="first")': ('first', 'step'),
  # Hugging Face.
  'xlflax.to_huggingface(DIR, "out")': (
    'to_huggingface.run', 'open it first: xlflax.open_run('),
  'xlflax.to_huggingface(run)': ('lacks', 'folder'),
  'xlflax.to_huggingface(run, "out", dtype="float8")': ('float8', 'float16'),
  'xlflax.to_huggingface(run, "out", dtype=np.float16)': ('dtype', 'text'),
  'xlflax.to_huggingface(run, "out", model_type="robertaa")': ('robertaa',),
  'xlflax.to_huggingface(run, "out", task="tagging")': ('task', 'tagging'),
  'xlflax.to_huggingface(run, "out", drop="head")': ('drop', 'into a list'),
  'xlflax.to_huggingface(run.at("untrained"), "out")': ('saved checkpoint',),
  'xlflax.from_huggingface("nowhere")': ('nowhere',),
  'xlflax.from_huggingface(["a"])': ('from_huggingface.folder', 'a path'),
  'xlflax.from_huggingface(DIR, languages="de")': ('languages', 'into a list'),
  'xlflax.from_huggingface(DIR, unused_rows="ignore")': (
    'unused_rows', "'ignore'", "'refuse'"),
  'xlflax.from_huggingface(DIR, vocab_multiple=0)': ('vocab_multiple', '0'),
  # Corpora and vocabularies.
  'data.Corpus(3)': ('Corpus', '3 (int)', 'a path'),
  'data.Corpus("nowhere")': ('nowhere',),
  'CORPUS.monolingual_languages("valid")': ('valid', 'mean validation?'),
  'list(CORPUS.monolingual("eng"))': ('eng', 'did you mean en?'),
  'list(CORPUS.monolingual("en", "dev"))': ('dev', 'train, validation, test'),
  'list(CORPUS.parallel(("en", "de")))': ('Corpus.parallel', 'second'),
  'CORPUS.count(["en"])': ('Corpus.count.languages', "['en']"),
  'CORPUS.fingerprint("tset")': ('tset', 'did you mean test?'),
  'data.write_monolingual("new", "en", ["a b", "c"])': (
    'documents[0]', 'into a list'),
  'data.write_monolingual(TMP / "m", "en", iter([["a"], [3]]))': (
    'documents[1][0]', '3 (int)'),
  'data.write_monolingual("new", "en", [["a"]], split="dev")': ('dev', 'train'),
  'data.write_parallel("new", "en-de", [("a", "b")])': ('languages', 'list'),
  'data.write_parallel("new", ["en", "de"], ["a b"])': ('pairs[0]', "'a b'"),
  'data.write_parallel("new", ["en", "de"], [("a", "b", "c")])': ('pairs[0]',),
  'data.train_vocabulary("corpus", "v", size=80)': (
    'train_vocabulary.corpus', "xlflax.data.Corpus('corpus')"),
  'data.train_vocabulary(CORPUS, "v")': ('size',),
  'data.train_vocabulary(CORPUS, "v", sise=80)': ('sise', 'did you mean size?'),
  'data.train_vocabulary(CORPUS, size=80)': ('lacks', 'output_dir'),
  'data.Vocabulary.load(CORPUS)': ('Vocabulary.load.directory', 'a path'),
  'data.Vocabulary.load("nowhere")': ('No vocabulary there', 'nowhere'),
  'VOCABULARY.encode(["the dog"])': ('Vocabulary.encode.text', 'text'),
  'VOCABULARY.language_id("eng")': ('eng', 'did you mean en?'),
  'VOCABULARY.language_id(None)': ('None',),
  'VOCABULARY.encode_batch([None])': ('encode_batch', 'None'),
  'VOCABULARY.encode_batch("the dog")': ('encode_batch', 'into a list'),
  'VOCABULARY.decode("abc")': ('decode', "'abc'"),
  'VOCABULARY.decode([10**6])': ('1000000',),
  'VOCABULARY.piece("the")': ('piece', "'the'"),
  'VOCABULARY.piece(-1)': ('-1',),
  # Loading, caches, preparation, dictionaries.
  'opening.open_loader(MONO, vocabulary="v", seed=0)': (
    'vocabulary', 'Vocabulary.load('),
  'opening.open_loader("text", vocabulary=VOCABULARY, seed=0)': ('stream',),
  'reader.TokenCache(None)': ('TokenCache', 'a path'),
  'reader.TokenCache("nowhere", generation=0)': ('generation', '0'),
  'writer.write_cache("cache")': ('write_cache.plan', 'Plan'),
  'preparation.prepare("corpus", "new", processing=PROCESSING)': (
    'prepare.corpus', 'xlflax.data.Corpus('),
  'preparation.prepare(CORPUS, "new", processing="moses")': ('processing',),
  'preparation.prepare(CORPUS, "new", processing=PROCESSING, languages="en")': (
    'languages', 'into a list'),
  'preparation.prepare(CORPUS, "new", processing=PROCESSING, share=2)': (
    'share', '2 (int)'),
  'dictionary.Dictionary.read(["a.tsv"])': ('Dictionary.read.path', 'a path'),
  'dictionary.Dictionary.read("a.tsv", format="musse")': (
    'format', 'did you mean muse?'),
  'dictionary.translations("en", ["a.tsv"])': (
    'dictionaries[0]', "Dictionary.read('a.tsv')"),
  'data.FileExamples(format="tsv", files="train.tsv")': (
    'FileExamples.files', "'train.tsv'", "{'en': 'train.tsv'}"),
  'data.FileExamples(format="tsv", files=["train.tsv"])': ('files', 'mapping'),
  'data.FileExamples(format="tvs", files={"en": "a"})': ('tvs', 'tsv'),
  'data.FileExamples(format="tsv", files={"en": 3})': ("at ['en']", '3'),
  'data.FileExamples(format="tsv", files={"en": "a"}).load("eng")': (
    'eng', 'did you mean en?'),
  'source.MinedFiles(files="a.txt")': ('MinedFiles.files', 'mapping'),
  'evaluation.FilePairs(files="en-fr.tsv")': ('FilePairs.files', 'mapping'),
  'parallel_text.MultiwayFiles(files="en.txt")': ('MultiwayFiles', 'mapping'),
  'xtreme.examples("nowhere", "xnil")': ('xnil', 'did you mean xnli?'),
  'self_labelling.label(teacher=run, source=FILES, output="o")': ('teacher',),
  # Models.
  'models.init_params(ENCODER, 0)': ('init_params.rng', 'jax.random.key(0)'),
  'models.init_params(ENCODER.config, KEY)': ('init_params.model', 'Module'),
  'models.init_params(ENCODER, KEY, batch_size=0)': ('batch_size', '0'),
  'models.count_params("model")': ('count_params', "'model'"),
  # Objectives and the streams that they read.
  'MIXTURE.stream_step("txet", 3)': ('txet', 'did you mean text?'),
  'trainer(objectives.TranslationLM(), MONO)': (
    'both sides of a pair in one row', 'Layout.BLOCKS', 'Layout.PAIRS'),
  'trainer(objectives.SentenceAlignment(), MONO)': (
    'two sides of a pair', 'Layout.SIDES'),
  'trainer(objectives.SentenceAlignment(), PAIRS)': ('Layout.SIDES',),
  'trainer(objectives.TranslationLM(), SIDES)': ('Layout.PAIRS',),
  'trainer(objectives.CrossAttentionMLM(), MONO)': ('Layout.SIDES',),
  'trainer(objectives.Translation(), MONO)': ('translation', 'Layout.SIDES'),
  'trainer(objectives.Translation(), ADJACENT)': ('translation', 'ADJACENT'),
  'trainer(objectives.SpanCorruption(), SIDES)': ('second side', 'BLOCKS'),
  'trainer(RTD, SIDES)': ('second side', 'BLOCKS'),
  'trainer(CLASSES, MONO)': ('labels', 'LabelledStream'),
  'trainer(objectives.TranslationLM(), LABELLED)': (
    'Layout.PAIRS', 'ClassificationRows'),
  'trainer(objectives.TokenClassification(labels=("a", "b")), LABELLED)': (
    'labels [B, T]', 'ClassificationRows'),
  'trainer(objectives.QuestionAnswering(), LABELLED)': ('start_positions',),
  'trainer(dataclasses.replace(CLASSES, labels=("b", "a")), LABELLED)': (
    'labels', 'same order'),
  # Trainers.
  'TRAINER.train("gin")': ('without names', 'gin_config='),
  'TRAINER.plan("gpu:H200:8")': ('Trainer.plan.machine', 'machines.parse('),
  'TRAINER.plan(by="guess")': ('by', 'guess', 'estimate'),
  'TRAINER.benchmark(steps=0)': ('steps', '0', 'at least 1'),
  'xlflax.register(objectives.MaskedLM)': ('register.name', 'MaskedLM'),
  'xlflax.register()': ('lacks', 'name'),
  # Vectors.
  'similarity.linear_cka(X, X[:3])': ('different sizes', '6 and 3'),
  'similarity.linear_cka(X[0], X[0])': ('[vectors, dimensions]', '(4,)'),
  'similarity.linear_cka(X, ["a"] * 6)': ('no array of numbers',),
  'similarity.linear_cka(X, X, estimator="unbiased")': (
    'estimator', 'unbiased', 'debiased'),
  'similarity.linear_cka(X)': ('lacks', 'second'),
  'similarity.LayerCKA(layers="diag")': ('layers', 'did you mean diagonal?'),
  'similarity.LayerCKA().update(X, X)': ('[layers, sentences, dimensions]',),
  'similarity.LayerCKA().update([], [])': ('[layers, sentences, dim',),
  'similarity.orthogonal_map(X, X[:, :2])': ('4 and 2 dimensions',),
  'similarity.orthogonal_map(X, None)': ('target', 'None'),
  'similarity.align(X, X, max_rounds=-1)': ('max_rounds', '-1'),
  'similarity.align(X, X, rounds=3)': ('mean max_rounds',),
  'similarity.procrustes.apply(X, X)': ('(6, 4)', '(4, 4)'),
  'similarity.procrustes.align_vocabularies(X, X, [(0, 9)])': ('9', '0 to 5'),
  'similarity.procrustes.align_vocabularies(X, X, [0, 1, 2])': ('(3,)',),
  'similarity.iterative_normalization([[1, 2], [3]])': ('array of numbers',),
  'similarity.iterative_normalization(X, tolerance=-1)': ('tolerance', '-1'),
  'similarity.cosine.nearest(X, X[:, :2])': ('4 and 2 dimensions',),
  'similarity.cosine.nearest(X[0], X)': ('[vectors, dimensions]', '(4,)'),
  'similarity.cosine.nearest(X, X[:0])': ('(0, 4)',),
  'similarity.cosine.nearest(X, X, block_size=0)': ('block_size', '0'),
  'similarity.cosine.accuracy(X)': ('(6, 4)',),
  'similarity.cosine.unit_rows(3)': ('()',),
  'similarity.csls.nearest(X, X, k=0)': ('0', 'at least 1'),
  'similarity.csls.nearest(X, X, score="euclid")': ('euclid', 'csls'),
  'similarity.csls.nearest(X, X, k="10")': ('k', 'without quotes: 10'),
  'similarity.csls.precision_at(np.zeros(6, int), [{0}] * 6, k=1)': ('(6,)',),
  'similarity.csls.precision_at([[0]], [0], k=1)': ('gold', '0'),
  'similarity.margin.candidates(X, X[:, :2])': ('4 and 2 dimensions',),
  'similarity.margin.candidates(X, X, margin="rato")': ('mean ratio',),
  'similarity.margin.of_pairs(X, X[:3])': ('6 and 3',),
  'similarity.word_alignment.cosine(X, X[:, :2])': ('4 and 2 dimensions',),
  'similarity.word_alignment.masses(X[0])': ('(4,)',),
  'similarity.word_alignment.link_matrix(X, "transport")': ('need a plan',),
  'similarity.word_alignment.link_matrix(X, "argmin")': ('mean argmax',),
  'similarity.word_alignment.transport_plan(X, X, X)': ('(6, 4)', '(6,)'),
  'similarity.word_alignment.to_links(X[0])': ('(4,)',),
  # Analyses, suites, fine-tuning, MTEB.
  'study.analyze("cka", output="o")': ('analyze.analysis', 'Study'),
  'study.analyze(cka_study.CkaStudy, output="o")': ('CkaStudy(...)',),
  'dictionaries.read_vectors(None)': ('read_vectors.path', 'a path'),
  'dictionaries.index_pairs([("a", "b")], X, X)': ('source', 'WordVectors'),
  'SUITE.task("xlni")': ('xlni', 'did you mean xnli?'),
  'SUITE.chosen("xnli")': ('names', 'into a list'),
  'SUITE.chosen(["xlni"])': ('xlni', 'did you mean xnli?'),
  'evaluate_suite.evaluate_suite(suite="xtreme", model_dirs=[DIR], data="d", '
  'output="o")': ('evaluate_suite.suite', 'Suite'),
  'evaluate_suite.evaluate_suite(suite=SUITE, model_dirs=DIR, data="d", '
  'output="o")': ('model_dirs', 'into a list'),
  'finetune.finetune(output="o", configuration="finetune/tagging.gin")': (
    'configuration', 'Configuration'),
  'finetune.finetune(output="o")': ('lacks', 'configuration'),
  'mteb_encoder.MtebEncoder(DIR)': ('MtebEncoder', 'xlflax.open_run('),
  'mteb_encoder.MtebEncoder(run, languages="en")': ('languages', 'list'),
}  # fmt: skip

# Fields of dataclasses.
FIELDS: dict[str, tuple[str, ...]] = {
  'trainer(MLM, MONO, streams=MONO)': ('Trainer.streams', 'Stream'),
  'trainer(MLM, MONO, streams=("text",))': ('Trainer.streams', "'text'"),
  'trainer(MLM, MONO, model=ENCODER.config)': ('Trainer.model', 'Encoder'),
  'trainer(MLM, MONO, model=models.Encoder)': ('Trainer.model', 'Encoder'),
  'trainer(MLM, MONO, optimizer=optax.adamw(1e-3))': (
    'Trainer.optimizer', 'ptimizer'),
  'trainer(MLM, MONO, optimizer="adamw")': ('Trainer.optimizer', "'adamw'"),
  'trainer(MLM, MONO, objectives=MLM)': ('objectives', 'ObjectiveMixture'),
  'trainer(MLM, MONO, vocabulary=VOCABULARY)': ('Trainer.vocabulary',),
  'trainer(MLM, MONO, corpus=CORPUS)': ('Trainer.corpus',),
  'trainer(MLM, MONO, evaluation=[TASK])': ('Trainer.evaluation',),
  'trainer(MLM, MONO, checkpoints=100)': ('Trainer.checkpoints', '100'),
  'trainer(MLM, MONO, total_steps="10")': ('total_steps', "'10'"),
  'trainer(MLM, MONO, log_to="tensorboard")': ('log_to',),
  'objectives.Entry(stream=MONO, objective=MLM)': ('Entry.stream',),
  'objectives.Entry(stream="text", objective=objectives.MaskedLM)': (
    'Entry.objective', 'MaskedLM'),
  'objectives.ObjectiveMixture(entries=MLM)': ('entries',),
  'objectives.ObjectiveMixture(entries=(MLM,))': ('entries', 'Entry'),
  'objectives.MaskedLM(mask_ratio="0.15")': ('mask_ratio', "'0.15'"),
  'dataclasses.replace(MONO, length="16")': ('length', "'16'"),
  'dataclasses.replace(MONO, mixture=["corpus.mono"])': ('mixture',),
  'training.AdamW(learning_rate="1e-3")': ('learning_rate', "'1e-3'"),
  'training.AdamW(learning_rate=optax.constant_schedule)': ('learning_rate',),
  'models.Encoder("small")': ('config',),
  'models.EncoderConfig(num_layers="6", hidden_dim=16, mlp_dim=16, '
  'num_heads=2)': ('num_layers', "'6'"),
  'evaluation.Retrieval(source="corpus")': ('Retrieval.source', 'PairSource'),
  'evaluation.CorpusPairs(directory=CORPUS)': ('directory',),
  'evaluation.Evaluation(every_steps=3, tasks=TASK)': ('tasks',),
  'data.LabelledStream(name="l", source="train.tsv", rows=None, length=8, '
  'batch_size=8)': ('LabelledStream',),
}  # fmt: skip

# Fields that there are not, or that are not given.
NAMES: dict[str, tuple[str, ...]] = {
  'trainer(MLM, MONO, modle_dir="a")': ('modle_dir', 'mean model_dir'),
  'xlflax.Trainer(model_dir="a")': ('Trainer needs fields', 'model'),
  'xlflax.Trainer("runs/a")': ('Trainer takes fewer', 'model_dir='),
  'data.Stream(nme="text")': ('nme', 'did you mean name?'),
  'objectives.MaskedLM(0.15)': ('MaskedLM takes', 'mask_ratio='),
  'objectives.MaskedLM(mask_rate=0.15)': ('mask_rate', 'mean mask_ratio'),
  'training.AdamW(lr=1e-3)': ('AdamW has no such field', 'lr', 'learning_rate'),
  'training.Linear(peak=1.0, warmup=3)': ('warmup', 'mean warmup_steps'),
  'models.EncoderConfig(num_layer=6)': ('num_layer', 'mean num_layers'),
  'models.Encoder(config=ENCODER.config, layers=3)': ('layers',),
  'evaluation.Retrieval(sorce=None)': ('sorce', 'did you mean source?'),
  'dataclasses.replace(MONO, lenght=3)': ('lenght', 'did you mean length?'),
}  # fmt: skip

# What looks similar and is right.
RIGHT = (
  'xlflax.open_run(pathlib.Path(DIR), step=np.int64(10), partitioner=ONE)',
  'run.encode(("Hund",), languages=("de",), layer=np.int32(-1))',
  'run.encode(np.array(["Hund", "Katze"]), languages=np.array(["de", "de"]))',
  'run.encode([], languages="de", pooling="FIRST", batch_size=np.int64(3))',
  'data.write_monolingual(TMP, "en", (iter(["a"]) for _ in range(2)))',
  'data.write_parallel(TMP / "c", ("en", "de"), iter([["a", "b"]]))',
  'CORPUS.fingerprint()',
  'VOCABULARY.encode_batch([b"the dog"])',
  'similarity.linear_cka(X.tolist(), jax.numpy.asarray(X))',
  'similarity.cosine.nearest(X.astype(jax.numpy.bfloat16), X)',
  'similarity.cosine.accuracy([0, 2])',
  'data.FileExamples(format="tsv", files={"en": pathlib.Path("a.tsv")})',
  'data.FileExamples(format="tsv", files={"en": ["a.tsv", "b.tsv"]})',
  'trainer(objectives.TranslationLM(), PAIRS)',
  'trainer(objectives.SentenceAlignment(), ADJACENT)',
  'trainer(MLM, SIDES)',
  'trainer(CLASSES, LABELLED)',
  'trainer(MLM, LABELLED)',
)
