"""What lies beside a toolset and is imported by it."""

ODD_ONE = 5
