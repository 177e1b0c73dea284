"""Import recorded chats, FunctionChat-Bench, tau2-bench and BFCL as scenarios with a toolset."""
