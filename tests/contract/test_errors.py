"""Errors: each says what is wrong, what to do, and how the command line ends (design/commands#exit-codes)."""

from __future__ import annotations

import pytest

from rolloutlog.contract import errors
from rolloutlog.contract.errors import InvalidRecord, MissingExtra, RolloutlogError
from rolloutlog.contract.vocabulary import RESOLVES_SLOT, RejectReason
from rolloutlog.contract.wire.rejection import Rejected

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, RolloutlogError)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_has_a_meaning_a_hint_and_an_exit_code(kind: type[RolloutlogError]) -> None:
    assert kind.__doc__
    assert kind.default_hint
    assert kind.exit_code in (1, 2, 3, 4)


def test_a_hint_may_be_more_exact_than_its_class() -> None:
    assert RolloutlogError("it broke").hint == RolloutlogError.default_hint
    assert RolloutlogError("it broke", "mend it").hint == "mend it"


def test_a_missing_extra_is_named_with_how_to_install_it() -> None:
    """A missing extra exits 2."""
    error = MissingExtra("trainer", "torch")
    assert error.exit_code == 2
    assert "[trainer]" in error.message
    assert error.hint == 'pip install "rolloutlog[trainer]"'


@pytest.mark.parametrize("reason", RejectReason)
def test_a_rejection_says_its_reason_and_whether_it_resolves_the_slot(reason: RejectReason) -> None:
    rejected = Rejected(reason, "because")
    assert str(rejected) == f"{reason}: because"
    assert rejected.resolves == (reason in RESOLVES_SLOT)
    assert not isinstance(rejected, RolloutlogError)


def test_a_producer_is_told_the_reason_that_a_reader_would_have_had() -> None:
    error = InvalidRecord(RejectReason.LENGTHS, "3 log-probs")
    assert error.reason is RejectReason.LENGTHS
    assert str(error) == "lengths: 3 log-probs"
