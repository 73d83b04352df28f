"""The producer for code without an event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from rolloutlog.contract.errors import InvalidRecord, NotOpen, TopicMissing
from rolloutlog.contract.events.event import Event
from rolloutlog.contract.settings import Settings
from rolloutlog.producers.sync_producer import SyncRolloutProducer
from tests.cases.rollouts import sound
from tests.producers.log import everything

pytestmark = pytest.mark.broker
ROOT = Path(__file__).parents[2]


def on_the_log(settings: Settings) -> list[Event]:
    return asyncio.run(everything(settings))


def ids(settings: Settings) -> list[str]:
    return sorted(event.headers.id for event in on_the_log(settings) if event.headers.id)


def test_it_does_what_the_asynchronous_one_does(settings: Settings) -> None:
    with SyncRolloutProducer(settings) as producer:
        published = producer.publish(sound("g", 0))
        pending = producer.submit(sound("g", 1))
        producer.flush()
        assert pending.done
        assert pending.result().event_id == pending.event_id == "g.1.1"
        with pytest.raises(InvalidRecord):
            producer.publish(sound("g", 2))
        producer.publish_many([sound("h", 0), sound("h", 1)])
        producer.abort(sound("i", 0).slot)
        producer.fail(sound("i", 1).slot, ValueError("no"))
        producer.annotate(sound("g").slot, {"reward": 0.0})
        producer.cancel("j", [0, 1], "refused", group_size=2)
    assert published.handle in [event.handle for event in on_the_log(settings)]
    assert len(on_the_log(settings)) == 8
    with pytest.raises(NotOpen):
        producer.publish(sound("g", 0))
    producer.close()


def test_it_raises_what_opening_raises_and_leaves_no_thread(undeclared: Settings) -> None:
    before = threading.active_count()
    with pytest.raises(TopicMissing):
        SyncRolloutProducer(undeclared)
    assert threading.active_count() == before


def test_many_threads_share_one(settings: Settings) -> None:
    with SyncRolloutProducer(settings) as producer:

        def publish(thread: int) -> None:
            for attempt in range(5):
                producer.publish(sound(f"g{thread}", attempt=attempt + 1))

        threads = [threading.Thread(target=publish, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(ids(settings)) == 20


def test_a_forked_child_is_told_to_open_its_own(settings: Settings) -> None:
    with SyncRolloutProducer(settings) as producer:
        producer.publish(sound("g", 0))
        child = os.fork()
        if not child:
            code = 1
            try:
                producer.publish(sound("g", 1))
            except NotOpen:
                producer.close()  # does nothing, and the parent's stays open
                code = 0
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        producer.publish(sound("g", 1))
    assert ids(settings) == ["g.0.1", "g.1.1"]


def script(settings: Settings, body: str) -> subprocess.Popen[str]:
    """A program of a user, with an open `producer`; it prints what it does."""
    head = f"""
        import os, signal, threading, time
        from rolloutlog.producers.sync_producer import SyncRolloutProducer
        from tests.cases.rollouts import sound
        producer = SyncRolloutProducer(
            namespace={settings.namespace!r}, bootstrap_servers={settings.bootstrap_servers!r}
        )
    """
    text = textwrap.dedent(head) + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", text], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_program_that_ends_without_close_loses_nothing(settings: Settings) -> None:
    program = script(settings, "producer.submit(sound('g'))")
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out, err) == (0, "", "")
    assert ids(settings) == ["g.0.1"]


def test_ctrl_c_while_it_publishes_leaves_a_producer_that_closes(settings: Settings) -> None:
    body = """
        with producer:
            attempt = 0
            try:
                while True:
                    attempt += 1
                    producer.publish(sound("g", attempt=attempt))
                    if attempt == 1:
                        print("ready", flush=True)
            except KeyboardInterrupt:
                producer.publish(sound("after"))
        print("closed", flush=True)
    """
    program = script(settings, body)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out, err) == (0, "closed\n", "")
    assert "after.0.1" in ids(settings)


def test_ctrl_c_while_it_closes_ends_the_program(settings: Settings) -> None:
    """Closing waits for records that never arrive, until the user has had enough."""
    body = """
        producer.submit(sound("g"))
        producer.flush()
        opened = producer._producer.writer
        async def never(patience_s):
            import asyncio
            print("closing", flush=True)
            await asyncio.sleep(3600)
        opened.flush = never
        try:
            producer.close()
        except KeyboardInterrupt:
            print("interrupted", threading.active_count(), flush=True)
    """
    program = script(settings, body)
    assert program.stdout is not None
    assert program.stdout.readline() == "closing\n"
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=60)
    assert (program.returncode, out, err) == (0, "interrupted 1\n", "")
