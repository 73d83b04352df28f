"""Settings come from flags, then variables, then the file, then defaults; what isn't known is refused
(design/commands#settings)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rolloutlog.cli.config import origin_of
from rolloutlog.cli.target_broker import with_broker
from rolloutlog.contract.errors import BrokerUnreachable, SettingsError
from rolloutlog.contract.settings import RerollMembers, Settings
from rolloutlog.settings_sources import load


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(text: str) -> None:
    Path("rolloutlog.toml").write_text(text)


def test_each_source_goes_before_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    write('namespace = "file"\nrun = "file"\n[trainer]\nbatch_groups = 3\nsync_period = 2\n')
    monkeypatch.setenv("ROLLOUTLOG_RUN", "variable")
    monkeypatch.setenv("ROLLOUTLOG_TRAINER__BATCH_GROUPS", "4")
    loaded = load({"namespace": "flag", "bootstrap_servers": None})
    settings = loaded.settings
    assert (settings.namespace, settings.run) == ("flag", "variable")
    assert (settings.trainer.batch_groups, settings.trainer.sync_period) == (4, 2)
    assert loaded.origins == {
        "namespace": "flag",
        "run": "ROLLOUTLOG_RUN",
        "trainer.batch_groups": "ROLLOUTLOG_TRAINER__BATCH_GROUPS",
        "trainer.sync_period": "rolloutlog.toml",
    }


@pytest.mark.parametrize("source", ["file", "variable", "flag"])
def test_none_unsets_an_optional_setting(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each source goes before the next in unsetting too."""
    write('blobs = "s3://b"\nrun = "r"\n[trainer.staleness]\nmax_staleness = 2\n')
    flags: dict[str, str] = {}
    if source == "file":
        write('blobs = "none"\nrun = "none"\n[trainer.staleness]\nmax_staleness = "none"\n')
    elif source == "variable":
        for name in ("BLOBS", "RUN", "TRAINER__STALENESS__MAX_STALENESS"):
            monkeypatch.setenv(f"ROLLOUTLOG_{name}", "none")
    else:
        flags = {"blobs": "none", "run": "none"}
        write("[trainer.staleness]\nmax_staleness = 'none'\n")
    made = load(flags).settings
    assert (made.blobs, made.run, made.trainer.staleness.max_staleness) == (None, None, None)
    assert made.trainer.open_bound is None


def test_a_word_for_a_type_with_its_defaults_may_be_a_variable_and_keeps_its_origin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where settings come in several types; a table goes into the whole value's variable, as JSON."""
    monkeypatch.setenv("ROLLOUTLOG_TRAINER__ORDER", "arrival")
    monkeypatch.setenv("ROLLOUTLOG_TRAINER__STALENESS__ON_EXPIRE", '{"type": "reroll-members", "tries": 2}')
    loaded = load({})
    assert loaded.settings.trainer.order.type == "arrival"
    assert loaded.settings.trainer.staleness.expiry == RerollMembers(tries=2)
    assert origin_of("trainer.order.type", loaded.origins) == "ROLLOUTLOG_TRAINER__ORDER"
    assert origin_of("trainer.straggler.type", loaded.origins) == "default"


def test_an_unknown_variable_is_refused_with_the_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROLLOUTLOG_TRAINER__BATCHGROUPS", "4")
    with pytest.raises(SettingsError, match=r"did you mean ROLLOUTLOG_TRAINER__BATCH_GROUPS\?"):
        load({})


@pytest.mark.parametrize(
    "name",
    [
        "ROLLOUTLOG_BROKER_SERVICE_HOST",
        "ROLLOUTLOG_BROKER_SERVICE_PORT",
        "ROLLOUTLOG_BROKER_SERVICE_PORT_PLAINTEXT",
        "ROLLOUTLOG_BROKER_PORT",
        "ROLLOUTLOG_BROKER_PORT_9092_TCP",
        "ROLLOUTLOG_BROKER_PORT_9092_TCP_ADDR",
        "ROLLOUTLOG_PORT_9092_UDP_PROTO",
        "ROLLOUTLOG_BIN",
    ],
)
def test_what_kubernetes_and_scripts_name_beside_the_run_is_no_setting(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A service named `rolloutlog-broker` puts its address into every container of the namespace."""
    before = load({}).settings
    monkeypatch.setenv(name, "10.0.0.7")
    assert load({}).settings == before


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest_name() -> None:
    write("[trainer]\nbatch_group = 3\n")
    with pytest.raises(
        SettingsError,
        match=r"trainer\.batch_group \(rolloutlog\.toml\): isn't known; did you mean trainer\.batch_groups",
    ):
        load({})


def test_a_bad_value_names_its_setting_and_origin() -> None:
    write("[topics]\npartitions = 0\n")
    with pytest.raises(SettingsError, match=r"topics\.partitions \(rolloutlog\.toml\)"):
        load({})


def test_a_file_that_isnt_there_or_isnt_toml_is_refused() -> None:
    with pytest.raises(SettingsError, match="no settings file"):
        load({}, Path("other.toml"))
    write("namespace = ")
    with pytest.raises(SettingsError, match="can't be read"):
        load({})


def test_without_an_address_and_a_running_broker_it_stops_and_names_the_command(tmp_path: Path) -> None:
    """A remote worker must never write to a private broker (design/brokers#which)."""
    with pytest.raises(BrokerUnreachable) as caught:
        with_broker(load({}).settings, tmp_path)
    assert "rolloutlog broker up" in caught.value.hint


def test_a_program_reads_the_same_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Settings.load` merges as the command line does: arguments for flags, tables merged, none unsets."""
    write('namespace = "file"\nrun = "file"\n[trainer]\nbatch_groups = 3\nsync_period = 2\n')
    monkeypatch.setenv("ROLLOUTLOG_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("ROLLOUTLOG_RUN", "variable")
    settings = Settings.load(trainer={"sync_period": 4}, blobs="none")
    assert settings == load({"trainer": {"sync_period": 4}}).settings
    assert (settings.namespace, settings.run) == ("file", "variable")
    assert (settings.trainer.batch_groups, settings.trainer.sync_period) == (3, 4)
    assert settings.bootstrap_servers is None, "none is set, and no broker runs here"
    with pytest.raises(SettingsError, match=r"trainer\.batch_group \(argument\): isn't known; did you mean"):
        Settings.load(trainer={"batch_group": 1})
    with pytest.raises(SettingsError, match=r"there is no settings file other\.toml"):
        Settings.load("other.toml")


def test_a_program_takes_the_address_that_the_command_line_takes(tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("bootstrap.servers=there:9092\n")
    write(f'command_config = "{properties}"\n')
    assert Settings.load().bootstrap_servers == "there:9092" == with_broker(load({}).settings).bootstrap_servers
    assert Settings.load(bootstrap_servers="here:9092").bootstrap_servers == "here:9092"
