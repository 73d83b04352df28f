"""The manifest of a frozen buffer: of what it is the fold, and which file holds its candidates (design/buffer#offline).

Guarantees: the same cut of the same log gives the same bytes; what is read is of a version that this one knows, without
unknown keys, and agrees with itself: as many offsets a topic as partitions, settings under their digest. Leaves out:
files, and the candidates (`candidate_table`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rolloutlog.buffer.offline.cut import Cut
from rolloutlog.contract.errors import ManifestInvalid
from rolloutlog.contract.handles import NAMESPACE
from rolloutlog.contract.settings import Settings, settings_digest
from rolloutlog.contract.topics import INPUT_TOPICS, Topic
from rolloutlog.contract.wire.rejection import problem_of

VERSION = 2
MANIFEST, CANDIDATES = "manifest.json", "candidates.npy"
Offset = Annotated[int, Field(ge=0)]
Name = Annotated[str, Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class CandidateFile(_Part):
    """Where the candidates are, beside the manifest: a structured array in NumPy's format."""

    file: Literal["candidates.npy"] = CANDIDATES
    count: Offset
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(_Part):
    """`begins` are the first offsets of `rollouts`, `offsets` the next ones of each input topic, by partition; `source`
    is
    the namespace that the run draws on besides its own, if any; `settings` the text that a run agrees on, under
    `settings_digest`; `derivations` and `kinds` what the candidates' numbers mean."""

    version: Literal[2] = VERSION
    namespace: Annotated[str, Field(pattern=NAMESPACE)]
    source: Annotated[str, Field(pattern=NAMESPACE)] | None = None
    begins: list[Offset]
    offsets: dict[Name, list[Offset]]
    settings: dict[str, Any]
    settings_digest: Name
    derivations: list[Name]
    kinds: list[Name]
    candidates: CandidateFile

    @classmethod
    def decode(cls, text: bytes, where: str) -> Manifest:
        """Read a manifest that lies at `where`. Raises ManifestInvalid."""
        try:
            said: Any = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise ManifestInvalid(f"{where} isn't JSON: {error}") from error
        version = cast("dict[str, Any]", said).get("version") if isinstance(said, dict) else None
        if version != VERSION:
            raise ManifestInvalid(f"{where} is of version {version!r}; this one reads version {VERSION}")
        try:
            manifest = cls.model_validate(said)
        except ValidationError as error:
            raise ManifestInvalid(f"{where}: {problem_of(error)}") from error
        if (problem := manifest.problem()) is not None:
            raise ManifestInvalid(f"{where}: {problem}")
        return manifest

    def encode(self) -> bytes:
        """Its bytes, for people to read as well."""
        return orjson.dumps(self.model_dump(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    def problem(self) -> str | None:
        """How it contradicts itself, if it does."""
        if settings_digest(self.settings) != self.settings_digest:
            return "its settings aren't those of its digest"
        try:
            partitions = self.agreed().topics.partitions
        except ValidationError as error:
            return f"its settings can't be used by this version: {problem_of(error)}"
        counts = {topic: len(offsets) for topic, offsets in self.offsets.items()}
        if len(self.begins) != partitions:
            return f"it begins at {len(self.begins)} offsets of {partitions} partitions"
        if counts != {str(topic): partitions for topic in INPUT_TOPICS}:
            return f"its offsets aren't those of {partitions} partitions of {', '.join(INPUT_TOPICS)}"
        return None

    def agreed(self) -> Settings:
        """Settings with what the text says. Raises ValidationError, where a derivation isn't installed, too."""
        return settings_of_text(self.settings, self.namespace)

    def cut(self, partition: int) -> Cut:
        """Where a partition is cut."""
        return Cut(*(self.offsets[topic][partition] for topic in INPUT_TOPICS))


def offsets_of(cuts: list[Cut]) -> dict[str, list[int]]:
    """The offsets of the partitions' cuts, by topic."""
    by_topic: dict[Topic, list[int]] = {topic: [cut.on(topic) for cut in cuts] for topic in INPUT_TOPICS}
    return {str(topic): offsets for topic, offsets in by_topic.items()}


def settings_of_text(text: dict[str, Any], namespace: str) -> Settings:
    """Settings with the text that a run agrees on. Raises ValidationError."""
    return Settings.model_validate({"namespace": namespace, **text})
