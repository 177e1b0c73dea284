"""Whether a sample passes: calls, replies, state, violations, success claims. Pure.

The same trajectory gives the same verdict, so that stored records can be scored again. Nothing is
counted over samples here; that is `figures`.
"""
