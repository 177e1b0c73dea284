"""The words around calls: trimmed at both ends and where a call stood, streamed as they settle."""


class Prose:
    """Collects what is no call. White space is held back until words follow it."""

    def __init__(self) -> None:
        self._said: list[str] = []
        self._spaces: list[str] = []
        self._at_seam = False

    @property
    def text(self) -> str:
        """All words so far."""
        return "".join(self._said)

    def say(self, text: str) -> str:
        """Take in text; return what can be shown now."""
        kept = text.rstrip()
        if not kept:
            self._spaces.append(text)
            return ""
        shown = "".join(self._spaces) + kept
        self._spaces = [text[len(kept) :]]
        if not self._said or self._at_seam:
            shown = ("\n" if self._said else "") + shown.lstrip()
        self._at_seam = False
        self._said.append(shown)
        return shown

    def cut(self) -> None:
        """Note that something stood here that is not part of the words."""
        self._at_seam = True
        self._spaces = []
