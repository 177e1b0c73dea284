"""In place of vLLM, for `run.py --stand-in`: the same command line, and answers drawn at random."""
