"""Which published weights stay: the newest few, and those of checkpoints (design/live-loop#weights).

Guarantees: weights go only once newer ones are on the log, void ones first, then the oldest, and neither one of the
newest `keep` nor one after a step of which a checkpoint is kept; only what this run published is touched, so several
may share a folder. A store that doesn't let them go keeps them, which is told once and ends nothing. Leaves out:
writing and removing (`rolloutlog.policy.weights`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping

from rolloutlog.contract.errors import WeightsUnwritten
from rolloutlog.contract.policies import History, Policy
from rolloutlog.contract.settings import Settings
from rolloutlog.policy.weights import policy_of, remove_weights

log = logging.getLogger(__name__)
SPARE = 2
"""Policies beside those that a worker within `max_staleness` may still be loading: the current one, and the next."""


class KeptWeights:
    """Those of one life, and of earlier ones once it `goes_on`."""

    def __init__(self, settings: Settings) -> None:
        training, staleness = settings.training, settings.trainer.staleness.max_staleness
        self._keep = max(training.keep_weights, (staleness or 0) + SPARE)
        self._most_steps, self._steps = training.keep_checkpoints, list[int]()
        self._known = deque[str]()
        self._told = False

    def goes_on(
        self, there: Iterable[str], published: Mapping[Policy, str], history: History, steps: Iterable[int]
    ) -> None:
        """A life begins: weights are `there`, the run has `published` some, and of these `steps` there are checkpoints.
        What was gone back to is published again, as another policy by the same file."""
        newest = dict[str, tuple[bool, Policy]]()
        for policy, uri in published.items():
            newest[name] = max(newest.get(name := _name(uri), (False, policy)), (history.is_live(*policy), policy))
        own = [uri for uri in there if _name(uri) in newest]
        self._known = deque(sorted(own, key=lambda uri: newest[_name(uri)]))
        self._steps = sorted(steps)

    def wrote(self, uri: str) -> None:
        """They are there, whether or not they are on the log yet."""
        self._known.append(uri)

    def saved(self, step: int) -> None:
        """A checkpoint of that step is there; so many of the newest are kept."""
        self._steps = [*self._steps, step][-self._most_steps :]

    def published(self) -> None:
        """The newest are on the log: let go what nobody needs any more."""
        old = [self._known.popleft() for _ in range(len(self._known) - self._keep)]
        needed = [uri for uri in old if (policy := policy_of(uri)) is None or policy.version in self._steps]
        self._known.extendleft(reversed(needed))
        for uri in old:
            if uri not in needed:
                self._remove(uri)

    def _remove(self, uri: str) -> None:
        try:
            remove_weights(uri)
        except WeightsUnwritten as error:
            if not self._told:
                log.warning("old weights stay: %s", error.message)
            self._told = True


def _name(uri: str) -> str:
    """Of the file, wherever its folder was then."""
    return uri.rpartition("/")[2]
