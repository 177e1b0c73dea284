"""Cassettes: a model's answers recorded with the time of each chunk, and played again."""

from lhkit.models.cassette.file import Cassette, encode_cassette, read_cassette
from lhkit.models.cassette.models import CassetteModel, RecordingModel

__all__ = ["Cassette", "CassetteModel", "RecordingModel", "encode_cassette", "read_cassette"]
