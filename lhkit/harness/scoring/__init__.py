"""Whether a sample passes: calls, replies, state, violations, success claims. Pure.

The same trajectory gives the same verdict, so that stored records can be scored again. Only the
packaged weights of the claim model are read from disk. Nothing is counted over samples here; that
is `figures`.
"""
