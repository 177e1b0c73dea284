"""The chat panel and its confirm card.

`state` folds events and `render` makes HTML, both pure; `screen` is the widget; `confirm` is the
gate, which waits for a click. Knows no domain and no board.
"""
