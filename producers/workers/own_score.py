"""The derivations of the run as its workers need them: which of them scores its own rollouts, and that score.

Guarantees: settings are the run's own, as the log has them, read when the first seed of a derivation comes; one that
isn't installed here, or whose score fails, costs the member that needs it and says why. Leaves out: making the rollout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rolloutlog.buffer.derivations.catalogue import derivation_of
from rolloutlog.buffer.derivations.protocol import Derivation, Scoring
from rolloutlog.contract.derivation_types import GROUP
from rolloutlog.contract.errors import InvalidRecord, SettingsError
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.numbers import REWARD, is_reward
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import DerivationSettings
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.producers.endings import with_facts


class RunDerivations:
    """Derivations of a run by name; `recorded` are their settings, as the text of its agreed settings has them."""

    def __init__(self, recorded: Sequence[Mapping[str, Any]]) -> None:
        self._recorded = {str(each["name"]): each for each in recorded}
        self._made: dict[str, Derivation] = {}

    def of(self, seed: Seed) -> Derivation | None:
        """What made the seed; None for a fresh one, and for a name that the run doesn't know. Raises SettingsError."""
        name = seed.derivation
        if name is None or name not in self._recorded:
            return None
        if name not in self._made:
            self._made[name] = _installed(name, self._recorded[name])
        return self._made[name]


def _installed(name: str, recorded: Mapping[str, Any]) -> Derivation:
    """Raises SettingsError where nothing here can act on those settings."""
    try:
        return derivation_of(DerivationSettings.model_validate(recorded).derive)
    except (ValueError, TypeError) as error:
        kind = recorded["derive"]["type"]
        said = (
            f"the package that offers the type {kind!r} of the derivation {name!r} is missing here, or another version"
        )
        raise SettingsError(f"{said} (entry points {GROUP}): {error}", "install what the buffer service has") from error


def scored(made: Trajectory, derivation: Derivation | None, seed: Seed) -> Trajectory:
    """The rollout with its derivation's score in place of its environment's; as it is where that has none.

    Raises InvalidRecord for a score that is no reward, and whatever the score raises.
    """
    if not isinstance(derivation, Scoring):
        return made
    score = derivation.score(seed, made.record)
    if not is_reward(score):
        raise InvalidRecord(RejectReason.SHAPE, f"{derivation.type} scores {score!r}, not {REWARD}")
    return with_facts(made, {"reward": score})
