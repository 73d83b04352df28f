"""Security settings from a Java `client.properties`, the file that Kafka's own tools take with `--command-config`.

Guarantees: what the file says about SASL and TLS becomes what our clients take, or is refused; a key that we don't know
is refused with the nearest one, so a misspelt setting never turns security off. No message repeats a value, or a line
that isn't a key: it may be a password or a private key. Keys that only tune Java's clients are ignored (`IGNORED`).
Leaves out: Kerberos and OAuth, and keystores in Java's own formats: PEM takes their place.
"""

from __future__ import annotations

import difflib
import re
import ssl
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import javaproperties

from rolloutlog.contract.errors import SettingsError

Security = Mapping[str, Any]
Properties = Mapping[str, str]

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
KNOWN = frozenset({
    "bootstrap.servers", "security.protocol", "sasl.mechanism", "sasl.jaas.config",
    "ssl.truststore.type", "ssl.truststore.location", "ssl.truststore.certificates",
    "ssl.keystore.type", "ssl.keystore.location", "ssl.keystore.certificate.chain", "ssl.keystore.key",
    "ssl.key.password", "ssl.endpoint.identification.algorithm",
})  # fmt: skip
IGNORED = frozenset({
    "acks", "auto.offset.reset", "batch.size", "client.dns.lookup", "client.id", "compression.type",
    "connections.max.idle.ms", "default.api.timeout.ms", "enable.auto.commit", "enable.idempotence", "group.id",
    "isolation.level", "linger.ms", "max.poll.interval.ms", "metadata.max.age.ms", "reconnect.backoff.ms",
    "request.timeout.ms", "retries", "retry.backoff.ms", "session.timeout.ms",
})  # fmt: skip
"""Keys of Java's clients that say nothing of security; ours are set as the design needs them."""
NAME = re.compile(r"[a-z][a-z.]*")
"""A key that may be repeated in a message: a piece of a certificate or of a password looks otherwise."""
JAAS_OPTION = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;]+))""")


def read_properties(path: str | None) -> Properties:
    """The keys of a file; nothing for none. Raises SettingsError for a file that can't be read or an unknown key."""
    if path is None:
        return {}
    try:
        found = parse(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"command_config {path} can't be read: {error}") from error
    except javaproperties.InvalidUEscapeError:  # which repeats what stands there
        raise SettingsError(
            f"{path} has a \\u without the four hexadecimal digits of a letter after it",
            "a backslash in a value is written twice",
        ) from None
    before = ""
    for key in found:
        if key not in KNOWN | IGNORED:
            raise _unknown(path, key, before)
        before = key
    return found


def _unknown(path: str, key: str, before: str) -> SettingsError:
    if not NAME.fullmatch(key):
        place = f"after {before}" if before else "at its beginning"
        return SettingsError(
            f"{path} has a line that is no `key=value` {place}",
            "a value of several lines, such as a key in PEM, needs a backslash at the end of each but the last; or "
            "leave it in a file of its own and name that in ssl.keystore.location",
        )
    near = difflib.get_close_matches(key, KNOWN, 1)
    hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(sorted(KNOWN))}"
    return SettingsError(f"{path} has the key {key}, which isn't known", hint)


def security_of(properties: Properties) -> Security:
    """What our clients take. Raises SettingsError for values that aren't supported, or that lack something."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise SettingsError(f"security.protocol {protocol} isn't one of {', '.join(PROTOCOLS)}")
    options: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL"):
        options |= _sasl(properties)
    if protocol.endswith("SSL"):
        options["ssl_context"] = _tls(properties)
    return options if protocol != "PLAINTEXT" else {}


def parse(text: str) -> Properties:
    """Keys and values of Java's format; blanks at the end of a value don't count, as with Kafka's tools.

    Raises InvalidUEscapeError.
    """
    return {key: value.rstrip() for key, value in javaproperties.loads(text).items()}


def _sasl(properties: Properties) -> dict[str, Any]:
    mechanism = properties.get("sasl.mechanism", "")
    if mechanism not in MECHANISMS:
        raise SettingsError(f"sasl.mechanism {mechanism or '(none)'} isn't one of {', '.join(MECHANISMS)}")
    options = {
        found[1]: re.sub(r"\\(.)", r"\1", next(text for text in found.groups()[1:] if text is not None))
        for found in JAAS_OPTION.finditer(properties.get("sasl.jaas.config", ""))
    }
    if not {"username", "password"} <= options.keys():
        raise SettingsError('sasl.jaas.config lacks username="..." or password="..."')
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": options["username"],
        "sasl_plain_password": options["password"],
    }


def _tls(properties: Properties) -> ssl.SSLContext:
    for store in ("truststore", "keystore"):
        kind = properties.get(f"ssl.{store}.type", "PEM" if f"ssl.{store}.location" not in properties else "JKS")
        if kind.upper() != "PEM":
            raise SettingsError(
                f"ssl.{store}.type {kind} can't be read outside Java",
                f"convert it to PEM and set ssl.{store}.type=PEM; `keytool -exportcert -rfc` prints a certificate",
            )
    _check_files(properties)
    with _named(properties, "ssl.truststore.location", "ssl.truststore.certificates"):
        context = ssl.create_default_context(
            cafile=properties.get("ssl.truststore.location"), cadata=properties.get("ssl.truststore.certificates")
        )
    with _named(properties, "ssl.keystore.location", "ssl.keystore.key"):
        _load_own_certificate(context, properties)
    if properties.get("ssl.endpoint.identification.algorithm", "https") == "":
        context.check_hostname = False
    return context


def _check_files(properties: Properties) -> None:
    for key in ("ssl.truststore.location", "ssl.keystore.location"):
        path = properties.get(key)
        if path is not None and not Path(path).is_file():
            raise SettingsError(f"{key} is {path}, and there is no such file", f"it is looked for in {Path.cwd()}")


@contextmanager
def _named(properties: Properties, location: str, text: str) -> Generator[None]:
    """Say whose certificates can't be used: OpenSSL names neither file nor key."""
    try:
        yield
    except (OSError, ValueError) as error:  # SSLError is an OSError
        which = f"{location} ({properties[location]})" if location in properties else text
        raise SettingsError(
            f"{which} can't be used: {error}",
            "it must be PEM: certificates, and in a keystore the private key before them; the password of an encrypted "
            "key is ssl.key.password",
        ) from error


def _load_own_certificate(context: ssl.SSLContext, properties: Properties) -> None:
    password = properties.get("ssl.key.password", "")
    if (location := properties.get("ssl.keystore.location")) is not None:
        context.load_cert_chain(location, password=password)
        return
    key, chain = properties.get("ssl.keystore.key"), properties.get("ssl.keystore.certificate.chain")
    if key is None and chain is None:
        return
    if key is None or chain is None:
        raise ValueError("ssl.keystore.key and ssl.keystore.certificate.chain need one another")
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # readable by us alone; ssl reads files only
        file.write(f"{key}\n{chain}\n")
        file.flush()
        context.load_cert_chain(file.name, password=password)
