"""Processes of brokers, as these tests look at them."""

from __future__ import annotations

import psutil

from rolloutlog.broker import BrokerState


def process_of(state: BrokerState, id: int = 1) -> psutil.Process:
    """The process of a node that runs."""
    started = state.node(id).process
    assert started is not None, f"node {id} was never started"
    return psutil.Process(started.pid)
