"""MkDocs hooks that build the documentation site.

Pages outside of `docs/` (`EXTERNAL_PAGES`) are added to the site. Links between
pages are rewritten, so that the same link works on GitHub and on the site. The
API reference is generated from the modules of the package.
"""

import ast
import pathlib
import posixpath
import re
import subprocess
from collections.abc import Iterable

ROOT = pathlib.Path(__file__).parents[2]

# File of the repository to page of the site.
EXTERNAL_PAGES = {
  'ARCHITECTURE.md': 'architecture.md',
  'CHANGELOG.md': 'changelog.md',
  'CONTRIBUTING.md': 'contributing.md',
  'README.md': 'index.md',
  'benchmarks/README.md': 'benchmarks.md',
  'launch/README.md': 'from_one_to_many.md',
}

# Packages that are not part of the API: the command line and an application.
_NON_API_PACKAGES = ('cli', 'demo')

_LINK = re.compile(r'\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)')


def on_config(config):
  """Adds the version and the commit to the footer of each page."""
  version = re.search(
    r"__version__ = '(.+)'", (ROOT / 'xlflax/__init__.py').read_text('utf-8')
  )
  assert version
  commit = subprocess.run(
    ['git', 'rev-parse', '--short', 'HEAD'],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  ).stdout.strip()
  config['copyright'] = f'xlflax {version[1]}' + (
    f', commit {commit}' if commit else ''
  )
  return config


def on_files(files, config):
  """Adds the pages outside of `docs/` and the API reference."""
  from mkdocs.structure.files import File

  for path, page in EXTERNAL_PAGES.items():
    text = (ROOT / path).read_text(encoding='utf-8')
    text = rewrite_links(text, path, page)
    files.append(File.generated(config, page, content=text))
  for page, text in api_pages().items():
    files.append(File.generated(config, page, content=text))
  return files


def on_page_markdown(markdown, page, config, files):
  """Rewrites the links of a page in `docs/`."""
  uri = page.file.src_uri
  if (ROOT / 'docs' / uri).exists():
    return rewrite_links(markdown, f'docs/{uri}', uri)
  return markdown


def rewrite_links(text: str, source: str, page: str) -> str:
  """Turns links between files of the repository into links of the site.

  A link to a file that is not on the site is replaced by its text. A link to a
  file that does not exist is not changed, so that a strict build reports it.

  Args:
    text: Markdown text of the page.
    source: Path of the page in the repository, such as 'launch/README.md'.
    page: Path of the page on the site, such as 'from_one_to_many.md'.
  """

  def rewrite(match: re.Match) -> str:
    label, target, anchor = match.groups(default='')
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if '://' in target or not (ROOT / path).exists():
      return match.group()
    if path not in EXTERNAL_PAGES and not path.startswith('docs/'):
      return label
    path = EXTERNAL_PAGES.get(path, path.removeprefix('docs/'))
    path = posixpath.relpath(path, posixpath.dirname(page) or '.')
    return f'[{label}]({path}{anchor})'

  return _LINK.sub(rewrite, text)


def api_pages() -> dict[str, str]:
  """Returns the Markdown text of the API reference by page.

  Each package has a page.
  """
  root = ROOT / 'xlflax'
  packages = sorted(
    path.parent.name
    for path in root.glob('*/__init__.py')
    if path.parent.name not in _NON_API_PACKAGES
  )
  pages = {
    'reference/index.md': _overview_page(packages),
    'reference/top_level.md': _package_page(root, root.glob('*.py')),
  }
  for package in packages:
    folder = root / package
    pages[f'reference/{package}.md'] = _package_page(
      folder, folder.rglob('*.py')
    )
  return pages


def _overview_page(packages: list[str]) -> str:
  """Returns the overview of all packages, with a summary of each."""
  lines = [
    '# API reference',
    '',
    'Public names are imported from their package: '
    '`from xlflax.models import Encoder`. The [architecture](../architecture.md) '
    'describes the order of the packages and their allowed imports.',
    '',
    '| package | content |',
    '| --- | --- |',
    '| [`xlflax`](top_level.md) | Runs as objects, and small modules. |',
  ]
  for package in packages:
    docstring = ast.get_docstring(_parse_package(ROOT / 'xlflax' / package))
    summary = ' '.join((docstring or '').split('\n\n')[0].split())
    lines.append(f'| [`xlflax.{package}`]({package}.md) | {summary} |')
  return '\n'.join(lines)


def _package_page(folder: pathlib.Path, files: Iterable[pathlib.Path]) -> str:
  """Returns a page with the public names of a package and its modules.

  Args:
    folder: Folder of the package.
    files: Python files of the package's modules.
  """
  title = '.'.join(folder.relative_to(ROOT).parts)
  modules = sorted(
    '.'.join(path.relative_to(ROOT).with_suffix('').parts)
    for path in files
    if not path.name.startswith('_')
  )
  blocks = [f'# {title}']
  if links := _public_name_links(folder):
    blocks.append(f'Public names of `{title}`: {", ".join(links)}.')
  return '\n\n'.join([*blocks, *(f'::: {module}' for module in modules)])


def _public_name_links(folder: pathlib.Path) -> list[str]:
  """Returns links to the lazily imported public names of a package."""
  return sorted(
    f'[`{alias.name}`][{node.module}.{alias.name}]'
    for block in _parse_package(folder).body
    if isinstance(block, ast.With)
    for node in block.body
    if isinstance(node, ast.ImportFrom) and node.module != 'xlflax'
    for alias in node.names
  )


def _parse_package(folder: pathlib.Path) -> ast.Module:
  """Parses the `__init__.py` of a package."""
  return ast.parse((folder / '__init__.py').read_text(encoding='utf-8'))
