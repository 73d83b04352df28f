"""What a foreign object says of itself, as text that JSON can hold.

Guarantees: always a text, cut at `MESSAGE_LIMIT` characters, whatever the object's own code raises; lone surrogates are
written out. Leaves out: what becomes of it (`refusal`, and the errors of failed rollouts).
"""

from __future__ import annotations

MESSAGE_LIMIT = 4000
"""A message that holds a whole prompt or a page of HTML says nothing more at its end."""


def text_of(said: object) -> str:
    """`str` of an object."""
    try:
        text = str(said)[:MESSAGE_LIMIT]
    except BaseException as error:  # noqa: BLE001  (it may do anything, also leave the program)
        text = f"its text can't be had: {type_name(error)}"
    return text.encode("utf-8", "backslashreplace").decode()[:MESSAGE_LIMIT]


def type_name(of: object) -> str:
    """Name of an object's class, whatever its metaclass answers."""
    return text_of(type.__dict__["__name__"].__get__(type(of)))
