"""Models: how prompts are written and calls are read, and who answers.

- `base`: the interface of a model; `families`: which names belong to which family.
- `dialects`: prompts and calls of each model family. Pure.
- `client`: speaks HTTP with running servers.
- `weights`: files on disk. `serving`: processes that lhkit starts and ends.
- `recorded`: models that answer from a recording or a script.

No room knows tools' handlers, gates or scenarios.
"""
