"""Whether what xlflax wrote is whole: every kind of artefact, file by file."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.examination.directories import repair_directory, verify_directory
  from xlflax.examination.findings import Examination, Finding, to_text
