"""What others have written down becomes scenarios and a toolset: chats, tau-bench, BFCL."""
