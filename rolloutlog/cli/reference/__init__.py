"""docs/reference, written from the code: `python -m rolloutlog.cli.reference [--check]`.

Guarantees: whatever a page says is read off a table of the code, so it can't grow old unnoticed. Leaves out: prose,
which the other pages of docs/ have.
"""
