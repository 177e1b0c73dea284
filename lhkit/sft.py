"""Data for supervised fine-tuning: conversations in the format that the model is evaluated in."""

from lhkit.harness.exports.sft import reference_conversations, write_sft
from lhkit.models.dialects import DIALECTS
from lhkit.models.dialects.training import prompt_completions, training_text

__all__ = [
    "DIALECTS",
    "prompt_completions",
    "reference_conversations",
    "training_text",
    "write_sft",
]
