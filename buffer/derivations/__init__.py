"""Derivations: how a recorded rollout becomes the prompt of a new task. One file each.

Guarantees: rendering is pure, so a seed can be rendered again and compared. A new derivation is one small file with
`anchors` and `prompt`, and optionally `score` (`protocol`). Leaves out: which source is drawn
(`rolloutlog.buffer.sources.draws`).
"""
