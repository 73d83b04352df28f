"""Why a broker doesn't accept us: the cause in words, where the client reports only that it couldn't bootstrap.

Guarantees: asked after a failure, it tries each address once more by hand and tells what stood in the way; a cause that
trying again doesn't cure is SecurityMismatch, any other one BrokerUnreachable. Leaves out: what the client logs.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from aiokafka.errors import (
    AuthenticationFailedError,
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from rolloutlog.contract.errors import BrokerUnreachable, RolloutlogError, SecurityMismatch
from rolloutlog.kafka.client.inner_parts import try_address

Address = tuple[str, int]

ANSWER_S = 10.0
MANY_BYTES = 1 << 28
"""The answer of a TLS listener to plain bytes, read as a length, is above this: no answer of Kafka is so long."""
HOSTS = {62: "another host", 64: "another address"}
"""OpenSSL's numbers of a certificate that is fine and not this host's."""
EXPIRED, NOT_YET = 10, 9


async def diagnose(addresses: Iterable[Address], options: Mapping[str, Any]) -> RolloutlogError | None:
    """What is in the way at the first of these addresses that won't have us; None where all answer by now.

    `options` are the client's. A mismatch at any address is told before one that doesn't answer.
    """
    found = [said for address in dict.fromkeys(addresses) if (said := await _try(address, options)) is not None]
    return next((error for error in found if isinstance(error, SecurityMismatch)), found[0] if found else None)


async def _try(address: Address, options: Mapping[str, Any]) -> RolloutlogError | None:
    given = {name: value for name, value in options.items() if name != "bootstrap_servers"}
    try:
        await try_address(*address, given, ANSWER_S)
    except (KafkaError, OSError, TimeoutError) as error:
        return _explained(error, address, given)
    return None


def _explained(error: Exception, address: Address, options: Mapping[str, Any]) -> RolloutlogError:
    where, protocol = f"{address[0]}:{address[1]}", str(options.get("security_protocol", "PLAINTEXT"))
    user, mechanism = options.get("sasl_plain_username"), options.get("sasl_mechanism")
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return _distrusted(cause, where)
        if isinstance(cause, (AuthenticationFailedError, SaslAuthenticationFailed)):
            return SecurityMismatch(
                f"{where} doesn't accept user {user}: {cause}", "are user name and password in sasl.jaas.config right?"
            )
        if isinstance(cause, UnsupportedSaslMechanismError):
            return SecurityMismatch(f"{where} doesn't offer sasl.mechanism {mechanism}", "ask for what it offers")
        if isinstance(cause, IllegalSaslStateError):
            return SecurityMismatch(
                f"{where} takes no user, and security.protocol is {protocol}", "is that the address of a SASL listener?"
            )
        if isinstance(cause, asyncio.IncompleteReadError) and (cause.expected or 0) > MANY_BYTES:
            return SecurityMismatch(
                f"{where} speaks TLS, and security.protocol is {protocol}",
                "set security.protocol to SSL or SASL_SSL in a client.properties, and give it by --command-config",
            )
        if isinstance(cause, ssl.SSLError):
            return SecurityMismatch(
                f"no TLS with {where}: {cause.reason or cause}",
                f"security.protocol is {protocol}: does that listener speak TLS, and does it take our certificate?",
            )
    return _unreachable(error, where, protocol)


def _unreachable(error: Exception, where: str, protocol: str) -> BrokerUnreachable:
    """Whatever closes a connection without a word; what it may mean depends on how far we came."""
    if isinstance(error, ConnectionResetError) and protocol.endswith("SSL"):
        return BrokerUnreachable(
            f"{where} closes the connection when TLS begins", f"security.protocol is {protocol}: does it speak TLS?"
        )
    if isinstance(error, KafkaError):
        return BrokerUnreachable(
            f"{where} closes the connection at our first request ({error})",
            f"security.protocol is {protocol}: does that listener ask for a user, for TLS, or for a certificate?",
        )
    said = "no answer" if isinstance(error, TimeoutError) else str(error) or type(error).__name__
    hint = "is the name right?" if isinstance(error, socket.gaierror) else None
    return BrokerUnreachable(f"no Kafka broker answers at {where}: {said}", hint)


def _distrusted(error: ssl.SSLCertVerificationError, where: str) -> SecurityMismatch:
    """Which of the three things is wrong with the certificate."""
    if error.verify_code in HOSTS:
        return SecurityMismatch(
            f"the certificate of {where} is for {HOSTS[error.verify_code]}: {error.verify_message}",
            "use a name that it is for in bootstrap.servers and in the broker's advertised.listeners",
        )
    if error.verify_code in (EXPIRED, NOT_YET):
        return SecurityMismatch(
            f"the certificate of {where} isn't valid now: {error.verify_message}",
            "the broker needs a new one; is the clock of this machine right?",
        )
    return SecurityMismatch(
        f"the certificate of {where} is signed by nobody that we trust: {error.verify_message}",
        "name a PEM file with its CA in ssl.truststore.location, with ssl.truststore.type=PEM",
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
