"""Where a feeder is in its source: tasks in order, epoch after epoch, and the cursor that says so
(design/live-loop#feeder).

Guarantees: from a cursor the walk goes on with the very next task; a source without a task, and a cursor of another
source, are errors. Leaves out: how many tasks there is room for (`fresh_room`), and writing (`seed_feeder`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.events.seeds import Fresh, Seed
from rolloutlog.contract.settings import OverProvision, Settings
from rolloutlog.producers.feeding.feed_cursor import FeedCursor, cursor_name
from rolloutlog.producers.feeding.fresh_groups import fresh_seed
from rolloutlog.producers.feeding.task_source import TaskSource


class TaskWalk:
    """`epochs`: how often the whole source; None: for ever. `name` is that of its cursor on `run`."""

    def __init__(self, source: TaskSource, epochs: int | None) -> None:
        self._source, self._epochs = source, epochs
        self._next = source.tasks(0)
        self.name = cursor_name(source.env)
        self.cursor = FeedCursor(source=source.identity)

    @property
    def is_over(self) -> bool:
        """All epochs were walked."""
        return self._epochs is not None and self.cursor.epoch >= self._epochs

    def resume(self, said: Mapping[str, Any] | None) -> None:
        """Go on where that cursor is. Raises SettingsError where it is another source's."""
        if said is None:
            return
        try:
            cursor = FeedCursor.model_validate(dict(said))
        except ValidationError as error:
            raise SettingsError(f"the cursor of {self.name} on `run` isn't a feeder's: {error}") from error
        if cursor.source != self._source.identity:
            raise SettingsError(
                f"this namespace was fed tasks of {self._source.env} from another source",
                "go on with the same file or seed, or use a new namespace",
            )
        self.cursor = cursor.model_copy(update={"is_done": False})
        self._next = self._source.tasks(cursor.place)

    def move(self, **changes: Any) -> None:
        """What the cursor says besides."""
        self.cursor = self.cursor.model_copy(update=changes)

    def seed(self, settings: Settings) -> Seed | None:
        """That of the next task; None at the end of an epoch. Raises SettingsError for a source without a task."""
        found = next(self._next, None)
        if found is None:
            if not self.cursor.place:
                raise SettingsError(f"there are no tasks of {self._source.env} in its source")
            self.move(epoch=self.cursor.epoch + 1, place=0)
            self._next = self._source.tasks(0)
            return None
        place, key, task = found
        self.move(place=place + 1)
        straggler = settings.trainer.straggler
        needed = straggler.group_train if isinstance(straggler, OverProvision) else None
        fresh = Fresh(key=key, epoch=self.cursor.epoch)
        return fresh_seed(self._source.env, fresh, task, group_size=settings.buffer.group_size, group_train=needed)
