"""Does a reply claim a write that did not happen? Judged against all calls; pure."""
