"""Import recorded chats, tau-bench and BFCL as scenarios with a toolset."""
