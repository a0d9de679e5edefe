"""Rendering of the job templates in `launch/templates` with jinja2.

The templates are YAML manifests and shell scripts. Every value passes through a
filter that quotes it: `yaml` for manifests and `shell` for scripts.
"""

import math
import pathlib
import re
import shlex
from typing import Any

import jinja2
import yaml

from xlflax.utils import errors

# YAML 1.1, YAML 1.2 and Go's parser disagree on which unquoted words are
# numbers or booleans ('1e3', 'y', '0o17'). All three parsers read words that
# match this pattern as strings, except for the words in `_AMBIGUOUS`.
_PLAIN_SCALAR = re.compile(
  r'(--)?[A-Za-z/][\w./@%+=-]+(:[\w./@%+=-]+)*', re.ASCII
)
_AMBIGUOUS = re.compile(r'true|false|yes|no|on|off|null|nan|inf', re.IGNORECASE)


def template_directory() -> pathlib.Path:
  """Returns the directory that contains the templates.

  The directory is installed as `xlflax/launch_templates`. In a source tree it
  is `launch/templates`, next to the package.
  """
  package = pathlib.Path(__file__).parents[1]
  installed = package / 'launch_templates'
  return (
    installed if installed.is_dir() else package.parent / 'launch/templates'
  )


def render_yaml(
  name: str, context: dict[str, Any], template: pathlib.Path | None = None
) -> str:
  """Renders a YAML manifest from a template.

  Args:
    name: Path of a template, relative to `launch/templates`.
    context: Mapping from the names of the template's variables to their values.
    template: Path of a template to render in place of `name`. It can extend or
      include xlflax's templates by their names.

  Raises:
    ConfigError: If the template is missing or invalid, or if its result is not
      YAML.
  """
  text = _render(name, context, template)
  # Quoted scalars have one line. Blank lines therefore come from blocks only.
  lines = [line.rstrip() for line in text.splitlines() if line.strip()]
  text = '\n'.join(lines) + '\n'
  try:
    list(yaml.safe_load_all(text))
  except yaml.YAMLError as error:
    raise errors.ConfigError(
      'The text that was rendered from the Jinja template is not valid YAML',
      got=' '.join(str(error).split()),
      where=str(template or name),
    ) from error
  return text


def render_shell(
  name: str, context: dict[str, Any], template: pathlib.Path | None = None
) -> str:
  """Renders a shell script; see `render_yaml` for the arguments."""
  return _render(name, context, template)


def quote_yaml(value: Any) -> str:
  """Returns a string as a YAML scalar on one line, quoted if necessary."""
  text = str(value)
  if _PLAIN_SCALAR.fullmatch(text) and not _AMBIGUOUS.fullmatch(text):
    return text
  return yaml.safe_dump(
    text, default_style='"', allow_unicode=True, width=math.inf
  ).rstrip('\n')


def quote_kubernetes_variables(value: Any) -> str:
  """Escapes $(VARIABLE), so that Kubernetes does not expand it."""
  return str(value).replace('$', '$$')


def _render(
  name: str, context: dict[str, Any], template: pathlib.Path | None
) -> str:
  """Renders a template; see `render_yaml` for the arguments."""
  environment = jinja2.Environment(
    loader=jinja2.FileSystemLoader(template_directory()),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    autoescape=False,  # The filters quote for YAML and for shells.
  )
  environment.filters.update(
    yaml=quote_yaml,
    shell=lambda value: shlex.quote(str(value)),
    shell_words=lambda values: shlex.join(map(str, values)),
    literal=quote_kubernetes_variables,
  )
  try:
    if template is None:
      loaded = environment.get_template(name)
    else:
      loaded = environment.from_string(template.read_text(encoding='utf-8'))
    return loaded.render(context)
  except jinja2.TemplateError as error:
    raise errors.ConfigError(
      'The template cannot be rendered, because Jinja raised '
      f'{type(error).__name__}',
      got=str(error),
      where=str(template or name),
    ) from error
  except (OSError, UnicodeError) as error:
    raise errors.ConfigError(
      'The template cannot be read', got=str(error), where=str(template)
    ) from error
