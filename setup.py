"""Package build script. Tool settings are in pyproject.toml."""

import ast
import pathlib

import setuptools

_HERE = pathlib.Path(__file__).parent


def _read_version() -> str:
  """Returns `__version__` of the package without importing the package."""
  tree = ast.parse((_HERE / 'xlflax/__init__.py').read_text(encoding='utf-8'))
  for node in tree.body:
    if ast.unparse(node).startswith('__version__ ='):
      return ast.literal_eval(node.value)
  raise ValueError('xlflax/__init__.py must define __version__.')


_WEB = ['py3langid>=0.4', 'rensa>=0.5', 'fonttools>=4.43', 'sentencex>=1.0.13']
_TEST = [
  'pytest>=8',
  'pytest-xdist>=3.5',
  'pytest-timeout>=2.3',
  'transformers>=5.24',
  'torch==2.13.0',
  'scipy>=1.11',
  'hypothesis>=6.100',
  'POT>=0.9.5',
  'peft>=0.18',
  'gcsfs>=2024.2',
  'pyarrow>=15',
  'PyYAML>=6',
  'pyte>=0.8',
  'build>=1.2',
  'setuptools>=70.1',
]
_DOCS = ['mkdocs-material>=9.5', 'mkdocstrings[python]>=0.26']
_LINT = ['ruff>=0.6', 'mypy>=1.11', 'pre-commit>=3.7']

setuptools.setup(
  name='xlflax',
  version=_read_version(),
  description='Cross-lingual language model pretraining in JAX and Flax.',
  long_description=(_HERE / 'README.md').read_text(encoding='utf-8'),
  long_description_content_type='text/markdown',
  license='Apache-2.0',
  python_requires='>=3.11',
  packages=(
    setuptools.find_packages(include=['xlflax', 'xlflax.*'])
    + ['xlflax.tasks', 'xlflax.gin_configs', 'xlflax.launch_templates']
    + [
      '.'.join((package, *path.relative_to(_HERE / folder).parts))
      for package, folder in (
        ('xlflax.gin_configs', 'gin_configs'),
        ('xlflax.launch_templates', 'launch/templates'),
      )
      for path in sorted((_HERE / folder).rglob('*'))
      if path.is_dir() and path.name != '__pycache__'
    ]
  ),
  package_dir={
    'xlflax.tasks': 'tasks',
    'xlflax.gin_configs': 'gin_configs',
    'xlflax.launch_templates': 'launch/templates',
  },
  package_data={
    '': [
      '*.csv',
      '*.gin',
      '*.html',
      '*.j2',
      '*.sbatch',
      '*.sh',
      '*.toml',
      'py.typed',
    ]
  },
  install_requires=[
    'jax>=0.10.2',
    'flax>=0.12.8',
    'optax>=0.2.8',
    'orbax-checkpoint>=0.12.5',
    'etils[epy]>=1.12',
    'numpy>=2.1',
    'cyclopts>=5.5',
    'gin-config>=0.5',
    'pydantic>=2.11',
    'annotated-types>=0.7',
    'sentencepiece>=0.2.1',
    'rich>=13',
    # Templates of jobs and of report pages.
    'jinja2>=3.1',
    'pandas>=2.2',
    'PyYAML>=6',
    'matplotlib>=3.8',
    'zstandard>=0.22',
    'google-crc32c>=1.5',
    'langcodes>=3.4',
    'icu4py>=1.2',
    'tensorboard>=2.16',
    'sacremoses>=0.1',
    'jieba>=0.42',
    'safetensors>=0.5',
    'tokenizers>=0.21',
    'conllu>=6.0',
    'sacrebleu>=2.4',
    'seqeval>=1.2.2',
    'scikit-learn>=1.4',
    'ufal.chu-liu-edmonds>=1.0.3',
    # SeqIO tasks. Training from a token cache never imports them.
    'seqio>=0.0.20',
    'tensorflow>=2.20',
    'tensorflow-datasets>=4.9.4',
    'importlib_resources>=6',  # TFDS imports it without declaring it.
    # Text of the demo: message catalogs in many languages.
    'Django>=4.2',
    'pycountry>=23.12',
    'polib>=1.2',
  ],
  extras_require={
    # Token caches on a distributed engine, such as Dataflow, Flink, Spark or Dask.
    # Beam 2.77 requires protobuf<7, which sentencepiece 0.2.3 does not support.
    'beam': ['apache-beam>=2.77', 'sentencepiece<=0.2.1'],
    # Filters of web text and near-duplicates.
    'web': _WEB,
    # Corpora in Parquet, Arrow and ArrayRecord files, and from Hugging Face
    # datasets.
    'sources': ['pyarrow>=15', 'array-record>=0.5', 'datasets>=3'],
    # nvdisasm is used to count the instructions of GPU kernels.
    'gpu': ['jax[cuda12]', 'nvidia-cuda-nvdisasm'],
    'tpu': ['jax[tpu]'],
    # Compilers that plan training steps for devices that are not available.
    'plan-gpu': ['jax[cuda12]', 'nvidia-cuda-nvdisasm'],
    'plan-tpu': ['jax[tpu]'],
    'buckets': ['gcsfs>=2024.2'],
    's3': ['s3fs>=2024.10'],
    'azure': ['adlfs>=2026.8'],
    # Local object store for the tests of `s3`.
    's3_test': ['s3fs>=2024.10', 'moto[server,s3]>=5'],
    # Export of encoders as ONNX files: `xlflax convert to-hf --onnx`.
    'onnx': ['torch', 'transformers>=5', 'onnx', 'onnxscript', 'onnxruntime'],
    # Benchmarks of sentence embeddings: `xlflax evaluate --mteb`.
    'mteb': ['mteb>=2.26'],
    'wandb': ['wandb>=0.19'],
    'mlflow': ['mlflow-skinny>=2.20'],
    't5x': ['t5x @ git+https://github.com/google-research/t5x'],
    'test': _TEST + _WEB,
    'docs': _DOCS,
    'dev': _TEST + _WEB + _LINT + _DOCS,
  },
  entry_points={'console_scripts': ['xlflax = xlflax.cli:main']},
  classifiers=[
    'Programming Language :: Python :: 3',
    'Programming Language :: Python :: 3.11',
    'Programming Language :: Python :: 3.12',
    'Programming Language :: Python :: 3.13',
    'Typing :: Typed',
    'License :: OSI Approved :: Apache Software License',
    'Topic :: Scientific/Engineering :: Artificial Intelligence',
  ],
)
