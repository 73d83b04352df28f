"""How old a token may be: the rule, its verdicts, and the masks that follow."""
