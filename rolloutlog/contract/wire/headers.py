"""The one table of headers: CloudEvents 1.0 in Kafka's binary mode, our provenance as extensions (design/log#events).

Guarantees: the class `Headers` is the table; each row knows its name, how to read and write it, and what it means,
and is parsed when it is accessed, not before. A consumer routes, counts, selects and skips an event from here alone.
Leaves out: whether a value agrees with its headers (`validation`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Any, Generic, TypeVar, overload

from rolloutlog.contract.handles import Handle
from rolloutlog.contract.numbers import natural
from rolloutlog.contract.policies import Policy
from rolloutlog.contract.vocabulary import WORD, Grain, RejectReason, RunKind, Status
from rolloutlog.contract.wire.rejection import HeaderError

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
RawHeaders = Iterable[tuple[str, bytes]]

SPEC_VERSION = "1.0"
CONTENT_TYPE = "content-type"
MAX_TEXT = 1024
"""Longest text of a header, so that what repeats it (index rows, dead letters) stays small."""

REMEMBERED = 256


class Field(Generic[T]):
    """One row of the table: a header that is parsed on access and None when absent."""

    __slots__ = ("dump", "kind", "meaning", "name", "parse", "read", "required", "write")

    def __init__(
        self,
        name: str,
        kind: str,
        parse: Callable[[str], T],
        meaning: str,
        *,
        required: bool = False,
        dump: Callable[[T], str] = str,
        unique: bool = False,
    ) -> None:
        self.name, self.kind, self.parse, self.meaning = name, kind, parse, meaning
        self.required, self.dump = required, dump
        self.read: Callable[[bytes], T] = self._read if unique else lru_cache(REMEMBERED)(self._read)
        """The value of this header; raises HeaderError(header-malformed). Most headers repeat over the members of a
        group and the records of a run, so what was read last is remembered, but for `unique` ones."""
        self.write: Callable[[T], bytes] = self._write if unique else lru_cache(REMEMBERED, typed=True)(self._write)
        """The header for a value, if it reads as that value; raises HeaderError(header-malformed)."""

    @overload
    def __get__(self, instance: None, owner: type[Headers]) -> Field[T]: ...
    @overload
    def __get__(self, instance: Headers, owner: type[Headers]) -> T | None: ...
    def __get__(self, instance: Headers | None, owner: type[Headers]) -> Field[T] | T | None:
        if instance is None:
            return self
        raw = instance.raw.get(self.name)
        return None if raw is None else self.read(raw)

    def _read(self, raw: bytes) -> T:
        try:
            return self.parse(raw.decode())
        except ValueError as error:
            raise HeaderError(
                RejectReason.HEADER_MALFORMED, f"header {self.name}={raw[:80]!r} isn't {self.kind}"
            ) from error

    def _write(self, value: T) -> bytes:
        try:
            raw = self.dump(value).encode()
        except ValueError as error:
            raise HeaderError(RejectReason.HEADER_MALFORMED, f"{self.name}={value!r} isn't text: {error}") from error
        if self.parse is _text and type(value) is str and 0 < len(value) <= MAX_TEXT:
            return raw  # reads as itself
        if (read := self.read(raw)) != value:
            raise HeaderError(RejectReason.HEADER_MALFORMED, f"{self.name}={value!r} would be read as {read!r}")
        return raw


def _text(text: str) -> str:
    if not 0 < len(text) <= MAX_TEXT:
        raise ValueError(f"has {len(text)} characters")
    return text


def _word_text(text: str) -> str:
    if not re.fullmatch(WORD, text):
        raise ValueError("isn't a word of small letters, digits and dashes")
    return text


def _one_of(words: Mapping[str, T]) -> Callable[[str], T]:
    """Reads one of a closed set of words, without the cost of calling an Enum."""

    def parse(text: str) -> T:
        if text not in words:
            raise ValueError(f"none of {', '.join(words)}")
        return words[text]

    return parse


def _word(kind: type[E]) -> Callable[[str], E]:
    return _one_of({str(word): word for word in kind})


def _real(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or "_" in text:
        raise ValueError("not a finite number")
    return value


def _real_text(value: float) -> str:
    return repr(float(value))


def _flag_text(value: bool) -> str:
    return "true" if value else "false"


class Headers:
    """The headers of one event, typed on access. `raw` is name to bytes; the last of a repeated name wins."""

    __slots__ = ("_given", "memo", "raw")

    spec_version = Field("ce_specversion", "text", _text, "CloudEvents version; 1.0 when absent")
    id = Field(
        "ce_id",
        "text",
        _text,
        "event id: a function of what the event says, so a retry is harmless",
        required=True,
        unique=True,
    )
    type = Field("ce_type", "text", _text, "event type, such as rollout.completed", required=True)
    source = Field("ce_source", "text", _text, "who wrote it, such as /workers/7", required=True)
    subject = Field("ce_subject", "text", _text, "what it is about: the rollout, seed, group or policy", unique=True)
    time = Field("ce_time", "RFC 3339 time", _text, "when it was written")
    content_type = Field(CONTENT_TYPE, "media type", _text, "how to read the value", required=True)
    schema_version = Field("ce_schemaversion", "integer", natural, "version of this type's schema", required=True)
    run = Field("ce_run", "text", _text, "the run that sampled it")
    env = Field("ce_env", "text", _text, "environment; of a derived rollout the innermost one")
    derivation = Field("ce_derivation", "text", _text, "name of the derivation, for derived rollouts")
    kind = Field("ce_kind", "train or eval", _word(RunKind), "train may seed and train; eval does neither")
    group = Field("ce_group", "text", _text, "group id; equals the record's key", required=True)
    group_size = Field("ce_groupsize", "integer", natural, "members dispatched", required=True)
    group_train = Field("ce_grouptrain", "integer", natural, "members needed to train the group")
    member = Field("ce_member", "integer", natural, "slot in the group, from 0", required=True)
    attempt = Field("ce_attempt", "integer", natural, "numbered try at this rollout, from 1")
    rollout = Field("ce_rollout", "text", _text, "rollout id: <group>.<member>", unique=True)
    status = Field("ce_status", "completed, aborted or failed", _word(Status), "how this attempt ended")
    stop_condition = Field("ce_stopcondition", "text", _text, "why generation stopped")
    oldest_policy = Field("ce_oldestpolicy", "timeline:version", Policy.parse, "oldest policy of a sampled token")
    newest_policy = Field("ce_newestpolicy", "timeline:version", Policy.parse, "newest policy of a sampled token")
    grain = Field(
        "ce_grain", "token, episode or none", _word(Grain), "how finely policies were recorded; token when absent"
    )
    dispatch_step = Field("ce_dispatchstep", "integer", natural, "train step at which it was dispatched")
    reward = Field("ce_reward", "number", _real, "reward; absent: pending", dump=_real_text, unique=True)
    tokens = Field("ce_tokens", "integer", natural, "tokens over all nodes")
    turns = Field("ce_turns", "integer", natural, "sampled nodes")
    branches = Field("ce_branches", "integer", natural, "root-to-leaf paths")
    filtered = Field(
        "ce_filtered",
        "true or false",
        _one_of({"true": True, "false": False}),
        "whether the source filtered it out",
        dump=_flag_text,
    )
    digest = Field(
        "ce_digest",
        "SHA-256, hex",
        _text,
        "digest of the value (of the body, where a claim stands for it)",
        unique=True,
    )
    raw_digest = Field(
        "ce_rawdigest", "SHA-256, hex", _text, "digest of the source's line, where imported", unique=True
    )
    origin_seed = Field(
        "ce_originseed", "text", _text, "seed from which all members of the group descend; absent: imported"
    )
    origin_offset = Field("ce_originoffset", "integer", natural, "offset of that seed on its partition of seeds")
    seed_kind = Field("ce_seedkind", "seed kind", _word_text, "what asked for this rollout")
    trace = Field(
        "ce_trace", "text", _text, "the rollout's own id in the run that recorded it; absent: sampled here", unique=True
    )
    source_file = Field(
        "ce_sourcefile",
        "text",
        _text,
        "the file that an importer gathered the group from, where no group was named",
    )
    source_id = Field("ce_sourceid", "text", _text, "id of the immediate source of a derived rollout")
    source_handle = Field(
        "ce_sourcehandle",
        "partition/offset/size",
        Handle.parse,
        "where the immediate source lies; behind `namespace:` in a source",
    )
    depth = Field("ce_depth", "integer", natural, "derivations between this rollout and its original task")
    seed = Field("ce_seed", "text", _text, "seed that a take, cancellation or expiry speaks of")
    worker = Field("ce_worker", "text", _text, "worker that took a seed")
    lease = Field("ce_lease", "milliseconds", natural, "how long a take holds without renewal")
    renewal = Field("ce_renewal", "integer", natural, "0 for a take, then counting")
    policy = Field(
        "ce_policy", "timeline:version", Policy.parse, "the policy that an event on policy-versions speaks of"
    )
    step = Field("ce_step", "integer", natural, "train step that an event was judged or written for")
    timeline = Field("ce_timeline", "integer", natural, "timeline that wrote a final event")
    pass_number = Field("ce_pass", "integer", natural, "pass over the data, from 1")
    reason = Field("ce_reason", "text", _text, "why a group was dropped or cancelled, or a record rejected")

    def __init__(self, raw: RawHeaders) -> None:
        self._given = raw
        self.raw: dict[str, bytes]
        """All by name, sorted out when one is asked for."""
        self.memo: object = None
        """What somebody made of all headers together, so that it is made once per record."""

    def __getattr__(self, name: str) -> dict[str, bytes]:
        if name != "raw":
            raise AttributeError(name)
        self.raw = dict(self._given)
        if None in self.raw.values():  # a null header says as much as an empty one
            self.raw = {name: raw or b"" for name, raw in self.raw.items()}
        return self.raw

    @classmethod
    def of(cls, raw: Mapping[str, bytes | None]) -> Headers:
        """Some headers by name; None is one that isn't there."""
        return cls((name, text) for name, text in raw.items() if text is not None)

    @classmethod
    def sorted_out(cls, raw: dict[str, bytes]) -> Headers:
        """All headers by name, as `raw` had them once."""
        made = cls(())
        made.raw = raw
        return made

    def require(self, field: Field[T]) -> T:
        """The value of a header that must be there; raises HeaderError(header-missing)."""
        raw = self.raw.get(field.name)
        if raw is None:
            raise HeaderError(RejectReason.HEADER_MISSING, f"header {field.name} is missing")
        return field.read(raw)

    @classmethod
    def table(cls) -> Iterator[tuple[str, Field[Any]]]:
        """The rows of the table: attribute name and field, in order."""
        for name, value in vars(cls).items():
            if isinstance(value, Field):
                yield name, value

    @classmethod
    def encode(cls, values: Mapping[str, Any]) -> list[tuple[str, bytes]]:
        """Headers for attribute names, each of which reads as what it was written for; None is left out.

        Raises HeaderError(header-malformed), and KeyError for a name that isn't in the table.
        """
        fields = [(FIELDS[name], value) for name, value in values.items() if value is not None]
        return [(field.name, field.write(value)) for field, value in fields]

    def __repr__(self) -> str:
        return f"Headers({self.raw!r})"


FIELDS: Mapping[str, Field[Any]] = dict(Headers.table())
KNOWN = frozenset(field.name for field in FIELDS.values())
FOREIGN = frozenset(
    f"ce_{name}"
    for name in (
        "datacontenttype",
        "dataschema",
        "partitionkey",
        "traceparent",
        "tracestate",
        "sequence",
        "sampledrate",
    )
)
"""Attributes of CloudEvents and its documented extensions that a producer's SDK may add; we don't read them."""


def check_names(headers: Headers) -> None:
    """Refuse an unknown `ce_` header, so that a misspelt one isn't silently ignored; others (tracing) pass."""
    if KNOWN.issuperset(headers.raw):
        return  # as it mostly is
    for name in headers.raw.keys() - KNOWN:
        if name.startswith("ce_") and name not in FOREIGN:
            raise HeaderError(RejectReason.HEADER_UNKNOWN, f"header {name} isn't in the table of headers")
