"""Models without a server: recorded answers, and scripts for tests and demos.

They fulfil the interface in `base`; a recorder wraps another model. Nothing here opens a
connection.
"""
