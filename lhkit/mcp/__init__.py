"""MCP: tools of servers that people have already, behind the confirm card; and our own as a server.

The official SDK speaks the protocol, over pipes and over HTTP. A server is a stranger: of what it
says nothing is believed that the user did not say, and nothing is waited for without a limit.
"""
