"""Import recorded chats and benchmarks as scenarios with a toolset.

A package adds an importer as an entry point of the group `lhkit.importers`: a function that returns
an `Imported`.
"""

from lhkit.imports.importers import Imported, ImportedFile, Loss

__all__ = ["Imported", "ImportedFile", "Loss"]
