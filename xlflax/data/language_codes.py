"""ISO 639-3 codes, as Tatoeba's files have them, to a vocabulary's codes."""

from collections.abc import Sequence

from xlflax.foundation import errors, suggestions

# Source: the ISO 639-3 code tables (iso639-3.sil.org), for the languages of
# the Tatoeba test sets of LASER and XTREME that have a two-letter code.
_TWO_LETTERS = dict(
  pair.split(':')
  for pair in """
  afr:af amh:am ara:ar aze:az bel:be ben:bn bos:bs bre:br bul:bg cat:ca ces:cs
  cmn:zh cor:kw cym:cy dan:da deu:de ell:el eng:en epo:eo est:et eus:eu fao:fo
  fas:fa fin:fi fra:fr fry:fy gla:gd gle:ga glg:gl guj:gu hau:ha heb:he hin:hi
  hrv:hr hun:hu hye:hy ido:io ile:ie ina:ia ind:id isl:is ita:it jav:jv jpn:ja
  kan:kn kat:ka kaz:kk khm:km kor:ko kur:ku lat:la lav:lv lit:lt lvs:lv mal:ml
  mar:mr mkd:mk mon:mn msa:ms mya:my nep:ne nld:nl nno:nn nob:nb oci:oc pan:pa
  pes:fa pol:pl por:pt ron:ro rus:ru slk:sk slv:sl som:so spa:es sqi:sq srp:sr
  swa:sw swe:sv swh:sw tam:ta tat:tt tel:te tgl:tl tha:th tuk:tk tur:tr uig:ug
  ukr:uk urd:ur uzb:uz vie:vi xho:xh yid:yi yor:yo zho:zh zsm:ms zul:zu
  """.split()
)


def short_code(code: str) -> str:
  """The two-letter code of a language where it has one: swh -> sw."""
  return _TWO_LETTERS.get(code, code)


def match(code: str, languages: Sequence[str]) -> str | None:
  """The one of `languages` that means the language `code`, or None.

  Looked for in this order: the code itself (swh), its two letters (sw),
  another three-letter code of the same two letters (swa), and a regional or
  script variant, if there is just one (zh_CN or zh-Hans for cmn).
  """
  short = short_code(code)
  for candidate in (code, short):
    if candidate in languages:
      return candidate
  same = [language for language in languages if short_code(language) == short]
  same = same or [
    language
    for language in languages
    if language.replace('-', '_').split('_')[0] == short
  ]
  return same[0] if len(same) == 1 else None


def language_id(
  vocabulary, code: str, notes: list[str], *, required: bool = False
) -> int:
  """The id of a language; 0, with a note, if the vocabulary lacks it.

  Args:
    vocabulary: the run's.
    code: of the language.
    notes: gets the note.
    required: for a model in which each language has parts of its own, where
      none can stand in; else only language embeddings make use of the id.

  Raises:
    VocabularyError: it is required, and the vocabulary lacks it.
  """
  known = match(code, vocabulary.spec.languages)
  if known is not None:
    return vocabulary.language_id(known)
  if required:
    raise errors.VocabularyError(
      'The model has no parameters for a language',
      got=code,
      expected='one of ' + ', '.join(vocabulary.spec.languages),
      fix=suggestions.language(code, vocabulary.spec.languages),
    )
  note = (
    f'the vocabulary has no language {code}; a model with language '
    f'embeddings reads it as {vocabulary.spec.languages[0]}'
  )
  if note not in notes:
    notes.append(note)
  return 0
