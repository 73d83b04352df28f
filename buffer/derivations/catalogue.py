"""The derivations of a run: what its settings name, and what is installed.

Guarantees: one place where settings become a derivation. Leaves out: what each does, and where they are registered: as
entry points in pyproject.toml, ours as anybody's (`rolloutlog.contract.derivation_types`).
"""

from __future__ import annotations

from functools import cache
from typing import cast

from rolloutlog.buffer.derivations.continuation import Continue
from rolloutlog.buffer.derivations.judge import Judge
from rolloutlog.buffer.derivations.protocol import Derivation
from rolloutlog.buffer.derivations.recheck import Recheck
from rolloutlog.contract.section import Section
from rolloutlog.contract.settings import BufferSettings

OWN: tuple[type[Derivation], ...] = (Continue, Recheck, Judge)


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


def anchor_types(settings: BufferSettings) -> list[type[Derivation]]:
    """Derivations of whose anchors a row tells: our own always, and what the settings name beside them."""
    named = {type(derivation_of(each.derive)): None for each in settings.derivations}
    return list(dict.fromkeys((*OWN, *named)))
