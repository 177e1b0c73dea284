"""MCP: tools of MCP servers behind the confirm gate, and lhkit's own tools as a server.

The protocol is the official SDK's, over pipes and HTTP. Servers are not trusted: their hints count
only where the user says so, and every wait has a limit.
"""
