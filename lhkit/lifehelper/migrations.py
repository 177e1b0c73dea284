"""The tables of the database, as forward-only migrations. Only SQL: `store` runs it.

Never edit a migration that was released; append one.
"""

APPLICATION_ID = 0x6C68_6B74  # "lhkt": tells our files from other programs' databases

_V1 = (
    """
    CREATE TABLE catalog_state (
      only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
      fingerprint TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE protocol (
      id TEXT PRIMARY KEY,
      category TEXT NOT NULL,
      source TEXT NOT NULL,
      url TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE protocol_text (
      protocol_id TEXT NOT NULL REFERENCES protocol (id) ON DELETE CASCADE,
      locale TEXT NOT NULL,
      title TEXT NOT NULL,
      summary TEXT NOT NULL,
      steps TEXT NOT NULL,
      anchor TEXT NOT NULL,
      PRIMARY KEY (protocol_id, locale)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE VIRTUAL TABLE protocol_search USING fts5 (
      id UNINDEXED, keywords, titles, labels, summaries, steps, joined, tokenize = 'trigram'
    )
    """,
    """
    CREATE TABLE habit (
      id TEXT PRIMARY KEY,
      protocol_id TEXT NOT NULL REFERENCES protocol (id),
      status TEXT NOT NULL CHECK (status IN ('active', 'archived')),
      frame_level TEXT NOT NULL CHECK (frame_level IN ('identity', 'action', 'outcome')),
      framed_text TEXT NOT NULL CHECK (trim(framed_text) <> ''),
      anchor_when TEXT,
      anchor_after_what TEXT,
      created_on TEXT NOT NULL CHECK (created_on GLOB '????-??-??')
    ) STRICT
    """,
    """
    CREATE UNIQUE INDEX habit_one_active_per_protocol
      ON habit (protocol_id) WHERE status = 'active'
    """,
    """
    CREATE TABLE tracker_entry (
      habit_id TEXT NOT NULL REFERENCES habit (id),
      date TEXT NOT NULL CHECK (date GLOB '????-??-??'),
      value TEXT NOT NULL CHECK (value IN ('done', 'blank')),
      PRIMARY KEY (habit_id, date)
    ) STRICT, WITHOUT ROWID
    """,
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_V1,)
"""The statements of each schema version, in order: the first makes version 1."""
