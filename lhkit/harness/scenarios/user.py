"""The simulated users, who answer confirmations in place of a person."""

from typing import Literal, TypeAlias

User: TypeAlias = Literal["script", "careful", "hasty"]
"""The simulated user: as scripted, one who reads each card, or one who always accepts."""
