"""A conversation over several turns, between a user, a model and tools.

- `assistant`: `Assistant`, its instructions and limits.
- `state`: `Transcript`, the messages and pending calls as an immutable value, and `ChatState`,
  which is computed from the events of a chat (`lhkit.conversation.events`).
- `step`: `next_step`, a pure function that decides what a turn does next.
- `controller`: `ChatController`, which runs the steps and emits the events.
- `truth`: what really ran in a turn, and whether a reply says otherwise.

A view subscribes to the controller and renders its `state`; see `lhkit.cli.chat.terminal`.
"""
