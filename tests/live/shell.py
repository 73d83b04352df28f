"""The command line as a test types it, with one namespace of the session's broker."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.cli import main
from rolloutlog.contract.settings import Settings
from rolloutlog.settings_sources import load


class Shell:
    """Runs commands in this process."""

    def __init__(self, broker: EmbeddedKafka, folder: Path, config: str) -> None:
        self._config = folder / "rolloutlog.toml"
        self._config.write_text(config)
        self._flags = {"namespace": f"live-{secrets.token_hex(4)}", "bootstrap_servers": broker.bootstrap_servers}

    @property
    def settings(self) -> Settings:
        """What the commands are told."""
        return load(self._flags, self._config).settings

    def run(self, *arguments: str, code: int = 0) -> str:
        """What it prints; it must end with `code`."""
        options = [
            "-n",
            self._flags["namespace"],
            "-b",
            self._flags["bootstrap_servers"],
            "--config",
            str(self._config),
        ]
        done = CliRunner().invoke(main.app, [*arguments, *options])
        found = getattr(done.exception, "exit_code", done.exit_code)
        assert found == code, f"{arguments}: {done.output} {done.exception!r}"
        return done.stdout

    def lines(self, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
        """The objects that it prints."""
        return [json.loads(line) for line in self.run(*arguments, "--json", code=code).splitlines()]
