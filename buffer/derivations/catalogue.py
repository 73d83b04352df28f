"""The derivations that this build has, by their settings.

Guarantees: one place to add one. Leaves out: what each does.
"""

from __future__ import annotations

from rolloutlog.buffer.derivations.continuation import Continuation, anchor_points
from rolloutlog.buffer.derivations.protocol import AnchorPoint, Derivation
from rolloutlog.contract.record.trajectory import Trajectory
from rolloutlog.contract.settings import Continue
from rolloutlog.contract.vocabulary import AnchorKind


def derivation_of(settings: Continue) -> Derivation:
    """The derivation that those settings describe."""
    return Continuation(settings.anchor)


def all_anchors(trajectory: Trajectory) -> list[AnchorPoint]:
    """Every place of every kind at which a rollout could be resumed, whatever the settings say."""
    return anchor_points(trajectory, *AnchorKind)
