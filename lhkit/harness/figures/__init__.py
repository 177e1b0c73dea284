"""Numbers over records: metrics, times, intervals, pairs, frames. Pure.

Reads no file and knows no renderer; a table or a chart is made above.
"""
