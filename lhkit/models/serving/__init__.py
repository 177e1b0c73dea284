"""Start, watch and end the processes that serve a model: vLLM and llama.cpp.

A server's command line and its life. What is asked of it over HTTP is in `client`, the files that
it reads are in `weights`.
"""
