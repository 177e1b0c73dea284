"""Teaching a small model a toolset: conversations, a LoRA trainer for a laptop's CPU, merging.

No lessons of a domain: those are made from a phrase file, or by code of your own.
"""
