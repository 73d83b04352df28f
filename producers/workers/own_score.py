"""The derivations of the run as its workers need them: which of them scores its own rollouts, and that score.

Guarantees: settings are the run's own, as the log has them; a type that isn't installed here is refused at the start,
before a seed of it is taken, which another worker may have it for. A score runs in a thread of its own, for `SCORE_S`
seconds at most: one that fails, hangs or blocks costs the member that needs it and says why. Leaves out: making the
rollout, and ending a thread that hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from rolloutlog.buffer.derivations.catalogue import derivation_of
from rolloutlog.buffer.derivations.protocol import Derivation, Measuring, Scoring
from rolloutlog.contract.derivation_types import GROUP
from rolloutlog.contract.errors import InvalidRecord, SettingsError
from rolloutlog.contract.events.seeds import Seed
from rolloutlog.contract.numbers import REWARD, is_reward
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import DerivationSettings
from rolloutlog.contract.vocabulary import RejectReason
from rolloutlog.kafka.client.daemon_thread import in_daemon_thread
from rolloutlog.producers.endings import with_facts

SCORE_S = 60.0


class RunDerivations:
    """Derivations of a run by name; `recorded` are their settings, as the text of its agreed settings has them. Raises
    SettingsError where one can't be had here."""

    def __init__(self, recorded: Sequence[Mapping[str, Any]]) -> None:
        self._made = {str(each["name"]): _installed(str(each["name"]), each) for each in recorded}

    def of(self, seed: Seed) -> Derivation | None:
        """What made the seed; None for a fresh one, and for a name that the run doesn't know."""
        return None if seed.derivation is None else self._made.get(seed.derivation)


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


async def scored(made: Trajectory, derivation: Derivation | None, seed: Seed) -> Trajectory:
    """The rollout with its derivation's score in place of its environment's; as it is where that has none.

    Raises InvalidRecord for a score that is no reward, TimeoutError, and whatever the score raises.
    """
    if derivation is None or not isinstance(derivation, Scoring):
        return made
    name = f"score of {derivation.type}"
    try:
        return await asyncio.wait_for(in_daemon_thread(partial(_score, made, derivation, seed), name), SCORE_S)
    except TimeoutError as error:
        raise TimeoutError(f"the {name} took more than {SCORE_S:g} s") from error


def _score(made: Trajectory, derivation: Scoring, seed: Seed) -> Trajectory:
    score = derivation.score(seed, made.record)
    if not is_reward(score):
        raise InvalidRecord(RejectReason.SHAPE, f"{seed.derivation} scores {score!r}, not {REWARD}")
    facts: dict[str, Any] = {"reward": score}
    if isinstance(derivation, Measuring):
        known = made.record.get("metrics")
        facts["metrics"] = {**(known if isinstance(known, dict) else {}), **derivation.metrics(seed, made.record)}
    return with_facts(made, facts)
