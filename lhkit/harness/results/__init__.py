"""Results for users: a run, a comparison of two runs, the history of many.

They read run folders and compute when asked. Their HTML is loaded when a notebook shows them.
"""
