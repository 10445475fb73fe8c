"""Patches of canary files for accepted proposals of judgments, to be committed by people."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.catalog.documents.canary_export import write_canary_file
from app.catalog.documents.canary_files import Documents
from app.catalog.documents.documents import CanaryDocument, JudgmentDocument, SuiteDocument
from app.catalog.store.suites import CanaryRow
from app.diagnosis.documents.judgment_patch import Replacement, judgment_name, patch_text, replace_judgments
from app.diagnosis.domain.views import FilePatch
from app.diagnosis.store.diagnoses import ReanchorRow

_LARGEST_FILE = 20_000_000


def file_patches(suite: str, canaries: Mapping[int, CanaryRow], rows: Sequence[ReanchorRow]) -> list[FilePatch]:
    """Patches to commit, one per file: a diff where the file can be read here, else its canaries as YAML."""
    changed: list[FileCanary] = []
    for canary_id, replacements in replacements_by_canary(rows).items():
        canary = canaries[canary_id]
        document = CanaryDocument.model_validate(canary.body)
        changed.append(FileCanary(canary=canary, document=document, replacements=replacements))
    return patch_files(suite, changed)


def patch_files(suite: str, canaries: Iterable["FileCanary"]) -> list[FilePatch]:
    """Patches to commit for canaries of files whose judgments change, one per file, as `file_patches`."""
    files: dict[str, list[FileCanary]] = defaultdict(list)
    for one in canaries:
        files[(one.canary.source or "").rpartition(":")[0]].append(one)
    return [
        {
            "file": file or None,
            "canaries": [one.canary.key for one in changed],
            "diff": _diff(suite, file, changed),
            "yaml": _yaml(suite, changed),
        }
        for file, changed in sorted(files.items())
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCanary:
    """A canary of a file with the replacements of its judgments, by name, and new ones."""

    canary: CanaryRow
    document: CanaryDocument
    replacements: Mapping[str, Sequence[JudgmentDocument]]
    added: Sequence[JudgmentDocument] = ()

    @property
    def edits(self) -> Mapping[str, Sequence[JudgmentDocument]]:
        """The replacements, the new judgments among them: they stand behind the last one there is."""
        if not self.added or not self.document.expected_chunks:
            return self.replacements
        last = self.document.expected_chunks[-1]
        name = judgment_name(last)
        return {**self.replacements, name: (*self.replacements.get(name, (last,)), *self.added)}

    @property
    def body(self) -> dict[str, Any]:
        """The canary with its new judgments."""
        body = replace_judgments(self.document, self.edits)
        alone = [] if self.document.expected_chunks else [chunk.data() for chunk in self.added]
        return {**body, "expected_chunks": [*body["expected_chunks"], *alone]}


def _diff(suite: str, file: str, changed: Sequence[FileCanary]) -> str | None:
    """Patch of a file, with its path in the repository; None where it is not readable here, or differs."""
    replacements: list[Replacement] = []
    for one in changed:
        mine = _canary_replacements(suite, one)
        if mine is None:
            return None
        replacements += mine
    try:
        path = Path(file)
        if not file or not path.is_file() or path.stat().st_size > _LARGEST_FILE:
            return None
        text = path.read_bytes().decode()
        root = next((folder for folder in path.absolute().parents if (folder / ".git").exists()), None)
    except (OSError, ValueError):
        return None
    name = file.lstrip("/") if root is None else path.absolute().relative_to(root).as_posix()
    return patch_text(name, text, replacements)


def _canary_replacements(suite: str, changed: FileCanary) -> list[Replacement] | None:
    """Return the replacements of the judgments of a canary; of two that become one, the second is removed.

    None where a judgment that is not replaced would need another grade.
    """
    if changed.added and not changed.document.expected_chunks:
        return None
    after = CanaryDocument.model_validate(changed.body).expected_chunks
    left = {chunk.identity: chunk for chunk in after}
    result: list[Replacement] = []
    replaced = [chunk for chunk in changed.document.expected_chunks if judgment_name(chunk) in changed.edits]
    for chunk in changed.document.expected_chunks:
        if chunk not in replaced and left.pop(chunk.identity) != chunk:
            return None
    for chunk in replaced:
        new = [left.pop(one.identity, None) for one in changed.edits[judgment_name(chunk)]]
        result.append(
            Replacement(
                suite=suite, key=changed.canary.key, old=chunk, new=tuple(one for one in new if one is not None)
            )
        )
    return result


def _yaml(suite: str, changed: Sequence[FileCanary]) -> str:
    canaries = [CanaryDocument.model_validate(one.body) for one in changed]
    return write_canary_file(Documents(suites=(SuiteDocument(slug=suite, canaries=tuple(canaries)),)))


def replacements_by_canary(rows: Iterable[ReanchorRow]) -> dict[int, dict[str, list[JudgmentDocument]]]:
    """Proposed judgments by canary id and name of the old judgment."""
    replacements: dict[int, dict[str, list[JudgmentDocument]]] = defaultdict(dict)
    for row in rows:
        replacements[row.canary_id][judgment_name(judgment_document(row.judgment))] = proposed_documents(row)
    return replacements


def judgment_document(judgment: Any) -> JudgmentDocument:
    """Document of a stored judgment."""
    return JudgmentDocument.model_validate(judgment)


def proposed_documents(row: ReanchorRow) -> list[JudgmentDocument]:
    """Documents of the judgments of a proposal."""
    return [judgment_document(one) for one in row.proposals]
