"""A tokenizer of single characters, and how it writes a conversation (design/live-loop#tokenizer).

Guarantees: total on its letters, and exact: what is decoded encodes to the same ids; a character that it doesn't have
is a typed error that names it. A conversation is each message's role and its characters; the last token is the role
that speaks next. Leaves out: tool calls, which an environment writes as characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from rolloutlog.contract.errors import UnknownCharacter
from rolloutlog.contract.ids import id_of

ROLES = ("system", "user", "assistant", "tool")
END = "end"
"""Ends an answer."""


class CharTokenizer:
    """Ids count the letters first, in their order, then the roles and the end."""

    def __init__(self, letters: str) -> None:
        if len(set(letters)) != len(letters):
            raise ValueError("a letter stands twice")
        self.letters = letters
        self._ids = {letter: number for number, letter in enumerate(letters)}
        self._roles = {role: len(letters) + number for number, role in enumerate(ROLES)}
        self.end = len(letters) + len(ROLES)

    @property
    def size(self) -> int:
        """Ids that there are."""
        return self.end + 1

    @property
    def digest(self) -> str:
        """Id of the letters: two tokenizers with one digest give equal ids."""
        return id_of("char-tokenizer", self.letters)

    def encode(self, text: str) -> list[int]:
        """Ids of a text. Raises UnknownCharacter."""
        if unknown := sorted(set(text) - self._ids.keys()):
            raise UnknownCharacter(f"this tokenizer has no {unknown[0]!r}", f"its letters are {self.letters!r}")
        return [self._ids[letter] for letter in text]

    def decode(self, ids: Iterable[int]) -> str:
        """The letters among those ids; roles and ends are no letters."""
        return "".join(self.letters[i] for i in ids if 0 <= i < len(self.letters))

    def render(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """Ids of a conversation, up to where the assistant speaks next. Raises UnknownCharacter."""
        ids: list[int] = []
        for message in messages:
            ids += [self._role(message), *self.encode(_text(message.get("content")))]
            ids += [self.end] if message.get("role") == "assistant" else []
        return [*ids, self._roles["assistant"]]

    def _role(self, message: Mapping[str, Any]) -> int:
        role = message.get("role")
        if role not in self._roles:
            raise UnknownCharacter(f"a message has the role {role!r}", f"roles are {', '.join(ROLES)}")
        return self._roles[role]


def _text(content: Any) -> str:
    """The text of a message, which may come in parts."""
    if isinstance(content, list):
        return "".join(_text(part) for part in cast("list[Any]", content))
    if isinstance(content, dict):
        return _text(cast("dict[str, Any]", content).get("text"))
    return content if isinstance(content, str) else ""
