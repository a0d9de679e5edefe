"""Verification and repair of the directories that xlflax writes."""

from etils import epy as _epy

with _epy.lazy_api_imports(globals()):
  from xlflax.integrity.verification import repair_directory, verify_directory
  from xlflax.integrity.verification_report import (
    Finding,
    VerificationReport,
    format_report,
  )
