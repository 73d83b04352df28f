"""The derivations of a run: what its settings name, and what is installed.

Guarantees: one place where settings become a derivation. Leaves out: what each does, and where they are registered: as
entry points in pyproject.toml, ours as anybody's (`rolloutlog.contract.derivation_types`).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, cast

from rolloutlog.buffer.derivations.anchor_type import AnchorType
from rolloutlog.buffer.derivations.continuation import Continue
from rolloutlog.buffer.derivations.judge import Judge
from rolloutlog.buffer.derivations.protocol import Derivation
from rolloutlog.buffer.derivations.recheck import Recheck
from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.numbers import is_natural
from rolloutlog.contract.section import Section
from rolloutlog.contract.settings import BufferSettings, DerivationSettings
from rolloutlog.contract.wire.rejection import fault_of

OWN: tuple[AnchorType, ...] = (AnchorType(Continue), AnchorType(Recheck), AnchorType(Judge))


HOOKS = tuple(name for name in vars(Derivation) if not name.startswith("_"))


def derivation_of(derive: Section) -> Derivation:
    """What those settings do. Raises TypeError where whoever offers them left out a hook."""
    if missing := _missing(type(derive)):
        raise TypeError(
            f"{type(derive).__name__} isn't a derivation, it has no {', '.join(missing)}: subclass DerivationSection, "
            "with anchors and prompt"
        )
    return cast("Derivation", derive)


@cache
def _missing(kind: type[Section]) -> list[str]:
    """Looked for once a type, since every record of a shard asks."""
    return [name for name in HOOKS if not (hasattr(kind, name) or name in kind.model_fields)]


def anchor_types(settings: BufferSettings) -> list[AnchorType]:
    """Derivations of whose anchors a row tells: our own always, and what the settings name beside them."""
    named: dict[type[Derivation], tuple[Derivation, ...]] = {}
    for each in settings.derivations:
        derivation = derivation_of(each.derive)
        named[type(derivation)] = (*named.get(type(derivation), ()), derivation)
    for own in OWN:
        named.pop(own.kind, None)
    return [*OWN, *(AnchorType(kind, tried) for kind, tried in named.items())]


class DerivationFacts(NamedTuple):
    """What a derivation says of itself, whatever the record."""

    most_anchors: int | None
    needs_environment: bool


def facts_of(settings: DerivationSettings) -> DerivationFacts:
    """Those of a derivation of the run. Raises SettingsError where it fails, or says what they can't be."""
    derivation = derivation_of(settings.derive)
    try:
        most, needs = derivation.most_anchors, derivation.needs_environment
    except Exception as error:
        raise SettingsError(f"the derivation {settings.name} fails before any record: {fault_of(error)}") from error
    if (most is not None and (not is_natural(most) or most < 1)) or needs not in (True, False):
        raise SettingsError(
            f"the derivation {settings.name} says most_anchors {most!r} and needs_environment {needs!r}: it is a "
            "number from 1 on or None, and true or false"
        )
    return DerivationFacts(most, needs)
