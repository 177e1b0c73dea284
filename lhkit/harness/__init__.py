"""The eval harness, in rooms from the scenarios that go in to the reports that come out.

- `scenarios`: the language in which conversations are written.
- `records`: what a run leaves on disk. `scoring`: whether a sample passes. Pure.
- `figures`: metrics and statistics over records. Pure. `views`: their tables and HTML.
- `results`: a run, a comparison, a history as values. `report`: whole documents.
- `running`: replays scenarios and writes records.
- `authoring`: lint, reference models, scenarios from chats. `chats`: kept chats and reviews.
- `exports`: other tools' formats, training data.

Imports no command, no notebook and no toolset of its own.
"""
