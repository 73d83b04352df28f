"""Security from a Java client.properties: taken, or refused; never silently ignored (design/brokers#yours)."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from rolloutlog.contract.errors import SettingsError
from rolloutlog.contract.settings import Settings
from rolloutlog.kafka.client.connection import connection_of
from rolloutlog.kafka.client.properties import parse, read_properties, security_of

TLS = Path(__file__).parents[1] / "data" / "tls"
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="s=c\\"r;t";'


def test_the_format_is_that_of_java() -> None:
    text = "# no\n! no\na=1\nb : 2\nc   3\n\n d.e = f=g \nlong=one, \\\n   two\nempty=\nuni\\u0041=\\t\\\\\n"
    assert parse(text) == {"a": "1", "b": "2", "c": "3", "d.e": "f=g", "long": "one, two", "empty": "", "uniA": "\t\\"}


def test_a_broken_escape_is_refused_and_not_repeated(tmp_path: Path) -> None:
    """Java's own tools refuse it too; it may be a piece of a password."""
    path = tmp_path / "client.properties"
    path.write_text("ssl.key.password=\\usecret\n")
    with pytest.raises(SettingsError, match=r"has a \\u without") as refused:
        read_properties(str(path))
    assert "sec" not in f"{refused.value.message} {refused.value.hint}".replace(str(path), "")
    assert refused.value.__suppress_context__


def test_sasl_over_tls_becomes_what_our_clients_take(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    escaped = JAAS.replace("\\", "\\\\")
    path.write_text(
        f"bootstrap.servers=kafka:9093\nsecurity.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.jaas.config={escaped}\nssl.truststore.type=PEM\nssl.truststore.location={TLS}/ca.pem\nretries=3\n"
    )
    connection = connection_of(Settings(command_config=str(path)))
    options = dict(connection.client_options)
    assert isinstance(options.pop("ssl_context"), ssl.SSLContext)
    assert options == {
        "bootstrap_servers": "kafka:9093",
        "client_id": "rolloutlog",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": 's=c"r;t',
    }


def test_without_a_file_nothing_is_secured_and_the_settings_address_wins(tmp_path: Path) -> None:
    assert security_of(read_properties(None)) == {}
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers=file:1\n")
    settings = Settings(bootstrap_servers="flag:2", command_config=str(path))
    assert connection_of(settings).bootstrap_servers == "flag:2"


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("security.protocoll=SSL", "did you mean security.protocol?"),
        ("ssl.truststore.locaton=x", "did you mean ssl.truststore.location?"),
        ("colour=blue", "known keys"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(line: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(line)
    with pytest.raises(SettingsError) as refused:
        read_properties(str(path))
    assert hint in refused.value.hint


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol TLS"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config lacks"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "x.jks"}, "JKS"),
        (
            {"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/no/ca"},
            "ssl.truststore.location is /no/ca, and there is no such file",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": "/no/key"},
            "ssl.keystore.location is /no/key, and there is no such file",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": str(TLS / "ca.pem")},
            r"ssl.keystore.location \(.*ca.pem\) can't be used",
        ),
        ({"security.protocol": "SSL", "ssl.truststore.certificates": "not PEM"}, "certificates"),
        ({"security.protocol": "SSL", "ssl.keystore.key": "alone"}, "need one another"),
    ],
)
def test_what_is_not_supported_is_refused(properties: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        security_of(properties)


@pytest.mark.parametrize("before", ["security.protocol=SSL\nssl.keystore.key=", "", "sasl.jaas.config=x\n"])
def test_a_private_key_pasted_without_backslashes_is_never_repeated(before: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    pem = (TLS / "client.pem").read_text()
    path.write_text(f"{before}{pem}\n")
    with pytest.raises(SettingsError, match="a line that is no `key=value`") as refused:
        read_properties(str(path))
    assert "backslash" in refused.value.hint
    said = f"{refused.value.message} {refused.value.hint}"
    assert not [line for line in pem.splitlines() if line in said]
    assert "ssl.keystore.key" not in before or "after ssl.keystore.key" in said


def test_an_unreadable_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="can't be read"):
        read_properties(str(tmp_path / "none"))


@pytest.mark.parametrize("inline", [False, True])
async def test_both_sides_of_a_handshake_are_checked(inline: bool) -> None:
    """mTLS: the server asks for our certificate, we check its."""
    files = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{TLS}/ca.pem",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{TLS}/client.pem",
    }
    text = (TLS / "client.pem").read_text()
    end = text.index("-----BEGIN CERTIFICATE")
    texts = {
        "ssl.truststore.certificates": (TLS / "ca.pem").read_text(),
        "ssl.keystore.key": text[:end],
        "ssl.keystore.certificate.chain": text[end:],
    }
    ours = security_of({"security.protocol": "SSL", **(texts if inline else files)})["ssl_context"]
    stranger = security_of({"security.protocol": "SSL"})["ssl_context"]
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(TLS / "ca.pem"))
    theirs.load_cert_chain(TLS / "server.pem")
    theirs.verify_mode = ssl.CERT_REQUIRED

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0, ssl=theirs) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("localhost", port, ssl=ours)
        assert await reader.read() == b"hello"
        writer.close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("localhost", port, ssl=stranger)
