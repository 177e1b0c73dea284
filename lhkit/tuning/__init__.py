"""Teaching a small model a toolset: conversations, a LoRA trainer for a laptop's CPU, merging."""
