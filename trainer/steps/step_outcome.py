"""What a trainer says of a batch that it is done with (design/trainer#steps). Guarantees: no event can fail to say it.
Leaves out: the records that say it (`step_events`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.wire.refusal import text_of
from rolloutlog.trainer.dispatch.batch import LeftOut


@dataclass(slots=True, frozen=True)
class StepOutcome:
    """What came of a batch: where the weights lie that it made, if they go out, their digest, where the state after it
    lies, if it was saved, with its digest, and which of its groups weren't trained, with the reason."""

    publish: str | None = None
    digest: str | None = None
    checkpoint: tuple[str, str | None] | None = None
    without: Mapping[str, LeftOut] = field(default_factory=dict[str, LeftOut])

    def __post_init__(self) -> None:
        """Raises SettingsError for what no event can say."""
        saved, saved_digest = self.checkpoint or (None, None)
        for name, said in {"publish": self.publish, "digest": self.digest, "checkpoint": saved}.items():
            _check_text(name, said)
        _check_text("checkpoint_digest", saved_digest)


def _check_text(name: str, said: object) -> None:
    """A place or a digest is a text, as every language reads it: no path object, nothing empty, no half characters."""
    if said is None or (isinstance(said, str) and said and said == text_of(said)):
        return
    raise SettingsError(f"{name} isn't a text that the log can hold: {said!r:.200}", "a path is given as str(path)")
