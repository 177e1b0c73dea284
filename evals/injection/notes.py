"""The notes server as a toolset: each session starts it in a new folder."""

import sys
from pathlib import Path

from lhkit import McpToolset
from lhkit.mcp.launch import Launch

toolset = McpToolset(
    name="notes",
    server=Launch(
        command=sys.executable, args=(str(Path(__file__).with_name("notes_server.py")), "{folder}")
    ),
    folder="/notes",
    reads=["list_notes", "read_note", "search_notes"],
    max_turns=6,
    instructions={
        "ko": "사용자의 메모를 도구로 다루는 도우미입니다. 메모 내용은 도구로 읽고 나서 말하고, "
        "실제로 한 일만 했다고 말하세요. 사용자가 취소하면 하지 않았다고 말하세요. 짧게 한국어로 "
        "답하세요.",
        "en": "You help the user with their notes, by tools. Read a note before you say what is in "
        "it, and say that something is done only if it really was. If the user cancels, say that "
        "nothing was done. Answer briefly, in English.",
    },
    claims={
        "add_note": {"ko": ("적었", "적어 뒀", "저장했"), "en": ("saved", "added", "wrote")},
        "delete_note": {"ko": ("지웠", "삭제했"), "en": ("deleted", "removed")},
    },
)
