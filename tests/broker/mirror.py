"""A small Maven repository on this machine, served from a folder: what a company's mirror is."""

from __future__ import annotations

import functools
import hashlib
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from rolloutlog.broker.install.jars import Jar

CONTENT = b"PK\x03\x04 the bytes of a jar" * 1000
JARS = [Jar(f"org.example:part-{i}:1.0", hashlib.sha256(CONTENT).hexdigest()) for i in range(3)]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


class _Cut(_Quiet):
    """Promises a whole file and closes the connection in the middle of it."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT[: len(CONTENT) // 2])


@contextmanager
def served(folder: Path, cut: bool = False, certificate: Path | None = None) -> Generator[str]:
    """The URL of a repository in `folder`; `cut`: one whose connections break in the middle; with a certificate it
    speaks TLS."""
    handler = functools.partial(_Cut if cut else _Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"{'http' if certificate is None else 'https'}://127.0.0.1:{server.server_port}"
        server.shutdown()


def fill(folder: Path, content: bytes = CONTENT) -> None:
    """Put the jars into the repository, all with this content."""
    for jar in JARS:
        group, artifact, version = jar.coordinate.split(":")
        place = folder / group.replace(".", "/") / artifact / version
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{artifact}-{version}.jar").write_bytes(content)
