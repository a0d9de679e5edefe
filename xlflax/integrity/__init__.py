"""Whether what xlflax wrote is whole: every kind of artefact, file by file."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.integrity.verification import repair_directory, verify_directory
  from xlflax.integrity.verification_report import Examination, Finding, to_text
