"""A conversation over several turns, between a user, a model and tools.

- `transcript`: `Transcript`, the messages and pending calls as an immutable value.
- `step`: `next_step`, the pure decision what a turn does next.
- `state`: `ChatState`, the state of a chat as a fold of its events (`lhkit.events`).
- `controller`: `ChatController`, which runs the steps and emits the events; `Assistant`, its
  instructions and limits.

A view subscribes to the controller and renders its `state`; see `lhkit.cli.terminal`.
"""
