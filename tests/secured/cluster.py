"""A secured cluster: TLS with a CA of its own, SCRAM, and Kafka's own authorizer (StandardAuthorizer).

Guarantees: real Kafka; its rights and users are what a test gives, and nobody has a right that isn't given. Beside the
listener that is right it has one for each thing that can be wrong with a certificate. Leaves out: mutual TLS.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rolloutlog.broker import EmbeddedKafka
from rolloutlog.broker.process.ports import free_ports

TLS = Path(__file__).parents[1] / "data" / "tls"
MECHANISM = "SCRAM-SHA-512"
LISTENERS = {"SECURED": "server", "EXPIRED": "expired", "ELSEWHERE": "elsewhere"}
"""Each with its certificate."""


@dataclass(frozen=True, slots=True)
class SecuredKafka:
    """`admin` is its plaintext listener, where everybody may do everything; the others ask for TLS and a user."""

    broker: EmbeddedKafka
    ports: dict[str, int]

    @property
    def admin(self) -> str:
        """For the administrator."""
        return self.broker.bootstrap_servers

    def address(self, listener: str = "SECURED") -> str:
        """For clients."""
        return f"localhost:{self.ports[listener]}"

    def properties(self, user: str, password: str | None = None, **changed: str | None) -> str:
        """A client.properties; a dot of a key is two underscores, None leaves the key out."""
        keys = {
            "bootstrap.servers": self.address(),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": jaas(user, password or password_of(user)),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(TLS / "ca.pem"),
        } | {name.replace("__", "."): text for name, text in changed.items()}
        return "".join(f"{key}={text}\n" for key, text in keys.items() if text is not None)


def password_of(user: str) -> str:
    """What a user's password is unless a test gives another."""
    return f"secret of {user}"


def jaas(user: str, password: str) -> str:
    """The module that a Java client would load."""
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return f'{module} required username="{user}" password="{password}";'


def start() -> SecuredKafka:
    """A cluster of one node, to be closed by `.broker.close()`."""
    ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
    listeners = ",".join(f"{name}://localhost:{port}" for name, port in ports.items())
    properties = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "listener.security.protocol.map": ",".join(f"{name}:SASL_SSL" for name in LISTENERS),
        "sasl.enabled.mechanisms": MECHANISM,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    for name, certificate in LISTENERS.items():
        prefix = f"listener.name.{name.lower()}."
        properties |= {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": str(TLS / f"{certificate}.pem"),
            f"{prefix}{MECHANISM.lower()}.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
        }
    return SecuredKafka(EmbeddedKafka(properties=properties).open(), ports)
