"""A training loop in a process of its own, for signals: `python sync_trainer_process.py MOMENT SETTINGS [SECONDS]`.

MOMENT is where it says so on stdout and stays: `waiting` for a batch that doesn't come, `training` one for a minute or
SECONDS, or `telling` over and over.
"""

from __future__ import annotations

import sys
import time

from rolloutlog.contract.settings import Settings
from rolloutlog.trainer.loop.sync_group_stream import SyncGroupStream


def say(word: str) -> None:
    print(word, flush=True)


def main() -> None:
    moment, settings = sys.argv[1], Settings.model_validate_json(sys.argv[2])
    with SyncGroupStream(settings) as stream:
        for number, batch in enumerate(stream):
            if moment == "training":
                say(moment)
                time.sleep(float(sys.argv[3]) if sys.argv[3:] else 60)
            if moment == "telling":
                say(moment)
            batch.trained(publish=(lambda: ("s3://w", "d")) if batch.publishes else None)
            if moment == "waiting" and number == 1:
                say(moment)


if __name__ == "__main__":
    main()
