"""Train and evaluate the model of false success claims, `lhkit/harness/scoring/claim_model.bin`.

    pip install -r evals/requirements-claims.txt
    python evals/learn_claims.py

Two logistic models over the features of `lhkit.harness.scoring.claim_model`, one for replies where
no write ran and one where one ran. The training data are `datasets/claims` (see its card). Prints
precision and recall (Wilson 95 %) with authors held out and with files held out, by language. The
thresholds give about 95 % precision on authors that were held out. Unchanged data and features
give the weights file byte for byte.
"""

import json
import random
import re
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, diags
from sklearn.linear_model import LogisticRegression

sys.path.insert(0, str(Path(__file__).parents[1]))
from lhkit.harness.figures.rates import wilson
from lhkit.harness.scoring import claim_model
from lhkit.harness.scoring.claim_model import (
    COMMON_BITS,
    SCALES,
    SIZE,
    History,
    common_bit,
    features,
    words_in,
)

FOLDER = Path(__file__).parents[1] / "datasets" / "claims"
WEIGHTS = Path(claim_model.__file__).with_suffix(".bin")
PARTS = ("dev", "hard", "more")
PRECISION = 0.95
MOST_WEIGHTS = (38_000, 12_000)
LEVELS = 15
STRENGTH = 10.0
GENERATED_WEIGHT = 0.5
"""Weight of generated rows, relative to labelled ones."""
_FAILURES = ("timeout", "handler_error", "validation", "not_found", "cancelled", "cancelled",
             "r3_quota", "limit")  # fmt: skip
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A reply with the calls before it and its label; only `is_counted` rows are evaluated."""

    part: str
    author: str
    locale: str
    user: str
    calls: Sequence[Mapping[str, Any]]
    reply: str
    is_false: bool
    weight: float = 1.0
    is_counted: bool = False
    kind: str = ""

    @property
    def history(self) -> History:
        """The calls before the reply."""
        history = History()
        history.add_message(self.user)
        for call in self.calls:
            history.add_call(
                call["tool"],
                call["outcome"],
                call["args"],
                writes=call["writes"],
                turn=call["turn"],
            )
        return history

    @property
    def ran(self) -> bool:
        """Whether a write succeeded."""
        return any(call["writes"] and call["outcome"] == "ok" for call in self.calls)


def load_labelled(part: str) -> list[Row]:
    """Return the labelled replies of a file."""
    return [
        Row(
            part=part,
            author=line["id"].partition("-")[0],
            locale=line["locale"],
            user=line["user"],
            calls=line["happened"],
            reply=line["reply"],
            is_false=line["label"] == "false_claim",
            is_counted=True,
            kind=line["kind"],
        )
        for line in map(json.loads, (FOLDER / f"{part}.jsonl").read_text("utf-8").splitlines())
    ]


def vary_histories(rows: Sequence[Row]) -> Iterator[Row]:
    """Yield the same replies with other calls: without their write, or after another write."""
    chosen = random.Random(1)
    writes = [call for row in rows for call in row.calls if call["writes"]]

    def changed(row: Row, calls: Sequence[Mapping[str, Any]], weight: float) -> Row:
        is_false = row.is_false or row.ran
        return Row(part=row.part, author=row.author, locale=row.locale, user=row.user, calls=calls,
                   reply=row.reply, is_false=is_false, weight=weight)  # fmt: skip

    for number, row in enumerate(rows):
        other = {**chosen.choice(writes), "outcome": "ok", "turn": 0}
        if row.kind == "true_report" and not row.is_false:
            failed = {"outcome": _FAILURES[number % len(_FAILURES)]}
            yield changed(row, [call for call in row.calls if not call["writes"]], 0.5)
            yield changed(row, [{**c, **failed} if c["writes"] else c for c in row.calls], 0.5)
            yield changed(row, [other], 0.3)
        elif not row.ran:
            yield changed(row, [other, *row.calls], 0.3)


def _call(tool: str, args: Mapping[str, str], outcome: str = "ok", *, writes: bool = True) -> Any:
    return {"turn": 0, "tool": tool, "writes": writes, "outcome": outcome, "args": args}


def _lines(name: str) -> Iterator[str]:
    for line in (FOLDER / f"{name}.txt").read_text("utf-8").splitlines():
        if line and not line.startswith("# "):
            yield line


def _filled(text: str, words: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda match: words[match[1]], text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A tool, two choices of its arguments and words for them, and templates by their mark."""

    tool: str
    words: Sequence[Mapping[str, str]]
    lines: dict[str, list[str]] = field(default_factory=lambda: {mark: [] for mark in "ul+-="})

    def call(self, choice: int, outcome: str = "ok") -> Any:
        """Return the write, with one choice of its arguments."""
        args = {k: v for k, v in self.words[choice].items() if not k.startswith("_")}
        return _call(self.tool, args, outcome)


def _parsed(name: str) -> list[Situation]:
    parsed: list[Situation] = []
    for line in _lines(name):
        if line[0] == "@":
            tool, _, slots = line[2:].partition(" ")
            named = re.findall(r"(\w+)=(.*?)(?= \w+=|$)", slots)
            choices = [{k: v.split("|")[min(n, v.count("|"))] for k, v in named} for n in (0, 1)]
            parsed.append(Situation(tool=tool, words=choices))
        else:
            parsed[-1].lines[line[0]].append(line[2:])
    return parsed


def situations(name: str) -> Iterator[Row]:
    """Yield the replies of a file of situations, after several histories."""
    chosen = random.Random(5)
    every = _parsed(name)
    for one in every:
        others = [other for other in every if other.tool != one.tool]
        read = _call(f"list_{one.tool.partition('_')[2] or one.tool}", {}, writes=False)
        for n, words in enumerate(one.words):
            asked = cycle([_filled(text, words) for text in one.lines["u"]])
            later = cycle([_filled(text, words) for text in one.lines["l"] or one.lines["u"]])

            def row(reply: str, calls: Sequence[Any], user: str, weight: float,
                    *, is_false: bool, words: Mapping[str, str] = words) -> Row:  # fmt: skip
                return Row(part=name, author=name, locale=name[-2:], user=user, calls=calls,
                           reply=_filled(reply, words), is_false=is_false,
                           weight=weight)  # fmt: skip

            def failed(one: Situation = one, n: int = n) -> Any:
                return one.call(n, chosen.choice(_FAILURES))

            for reply in one.lines["+"]:
                for calls in ([], [read], [failed()]):
                    yield row(reply, calls, next(asked), 0.4, is_false=True)
                yield row(reply, [failed()], next(later), 0.4, is_false=True)
                yield row(reply, [one.call(n)], next(asked), 0.6, is_false=False)
                yield row(reply, [read, one.call(n)], next(later), 0.4, is_false=False)
                other = chosen.choice(others).call(n)
                yield row(reply, [other, failed()], next(asked), 0.3, is_false=True)
                if "{" in reply:
                    yield row(reply, [other], next(asked), 0.3, is_false=True)
                    yield row(reply, [other, one.call(n)], next(asked), 0.4, is_false=False)
            for reply in one.lines["-"]:
                for calls in ([], [read], [failed()], [one.call(n, "cancelled")]):
                    yield row(reply, calls, next(asked), 0.4, is_false=False)
                calls = [chosen.choice(others).call(n), failed()]
                yield row(reply, calls, next(asked), 0.3, is_false=False)
            for reply in one.lines["="]:
                yield row(reply, [read], next(asked), 0.4, is_false=False)
                yield row(reply, [read], next(later), 0.4, is_false=False)
                yield row(reply, [chosen.choice(others).call(n), read], next(asked), 0.3,
                          is_false=False)  # fmt: skip


_HAPPENED: Mapping[str, Sequence[Any]] = {
    "n": [],
    "r": [_call("list_items", {}, writes=False)],
    "x": [_call("update_item", {}, "timeout")],
    "c": [_call("update_item", {}, "cancelled")],
    "w": [_call("add_item", {"item": "milk"})],
}


def single_replies() -> Iterator[Row]:
    """Yield single replies with the histories that they list, explanations and small talk."""
    for line in _lines("replies"):
        code, user, reply = line.split("|", 2)
        for letter in code[1:]:
            yield _honest(
                "replies", user, _HAPPENED[letter], reply, is_false=code[0] == "+", weight=3.0
            )
    for raw in map(json.loads, (FOLDER / "explanations.jsonl").read_text("utf-8").splitlines()):
        calls = [_call("add_habit", raw["args"], raw["rule"])]
        yield _honest("explanations", raw["user"], calls, raw["reply"], weight=6.0)
    for line in _lines("small_talk"):
        user, _, reply = line.partition(" | ")
        for letter in "nxw":
            yield _honest("talk", user, _HAPPENED[letter], reply, weight=0.5)


def denials(name: str) -> Iterator[Row]:
    """Yield honest denials (and similar claims) for verbs and names, after unsuccessful calls."""
    chosen = random.Random(9)
    lines: dict[str, list[str]] = {mark: [] for mark in "vxut+-"}
    for line in _lines(name):
        lines[line[0]].append(line[2:])
    names = [text.strip("'\"") for text in lines["x"]]
    forms = [
        dict(zip(("do", "did", "done", "be"), text.split("|"), strict=False)) for text in lines["v"]
    ]
    for (mark, reply), verb in product([(m, r) for m in "+-" for r in lines[m]], forms):
        number = chosen.randrange(len(names))
        words = {**verb, "x": lines["x"][number]}
        tool = chosen.choice(_WRITES)
        args = {chosen.choice(("title", "item", "text", "framed_text")): names[number]}
        if tool == "log_entry":
            args["value"] = "done"
        read = _call("list_items", {}, writes=False)
        for calls in (
            [],
            [read],
            [_call(tool, args, "cancelled")],
            [read, _call(tool, args, chosen.choice(_FAILURES))],
        ):
            user = _filled(chosen.choice(lines["u"]), words)
            tail = "" if chosen.random() < 0.6 else f" {chosen.choice(lines['t'])}"
            yield _honest("denials", user, calls, _filled(reply, words) + tail, weight=1.5,
                          is_false=mark == "+")  # fmt: skip
        if mark == "-":
            other = _call("add_item", {"item": chosen.choice(names)})
            calls = [other, _call(tool, args, "cancelled")]
            yield _honest("denials", user, calls, _filled(reply, words), weight=1.0)


_WRITES = ("add_habit", "save_note", "log_entry", "log_entry", "create_event", "send_message",
           "set_alarm", "update_item", "delete_item", "place_order", "book_table")  # fmt: skip


def talk() -> Iterator[Row]:
    """Yield short small talk, after several histories."""
    for line in _lines("talk"):
        user, reply = line.split("|")
        for letter in "nrxcw":
            yield _honest("talk", user, _HAPPENED[letter], reply, weight=4.0)


def _honest(part: str, user: str, calls: Sequence[Any], reply: str, *, weight: float = 1.0,
            is_false: bool = False) -> Row:  # fmt: skip
    locale = "ko" if re.search("[가-힣]", reply) else "en"
    return Row(part=part, author=part, locale=locale, user=user, calls=calls, reply=reply,
               is_false=is_false, weight=weight)  # fmt: skip


def right_conversations() -> Iterator[Row]:
    """Yield the replies of correct conversations, also without their writes."""
    for line in (FOLDER / "conversations.jsonl").read_text("utf-8").splitlines():
        calls: list[Any] = []
        for n, turn in enumerate(json.loads(line)["turns"]):
            user, reply = turn["user"], turn["reply"]
            new_calls = [{"turn": n, **call} for call in turn["happened"]]
            calls += new_calls
            yield _honest("gold", user, [*calls], reply, weight=2.0)
            without_writes = [call for call in calls if not _is_write(call)]
            if without_writes == calls:
                continue
            is_false = any(map(_is_write, new_calls))
            yield _honest("gold", user, without_writes, reply, weight=0.5, is_false=is_false)


def _is_write(call: Mapping[str, Any]) -> bool:
    return bool(call["writes"]) and call["outcome"] == "ok"


def common_words(rows: Sequence[Row]) -> bytes:
    """Return the bits of the words that four authors or more use, 12 times or more in total."""
    counts: Counter[str] = Counter()
    authors: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        for word in set(words_in(row.reply)):
            counts[word] += 1
            authors[word].add(row.author)
    bits = bytearray(COMMON_BITS // 8)
    for word, count in counts.items():
        if count >= 12 and len(authors[word]) >= 4:
            bit = common_bit(word)
            bits[bit >> 3] |= 1 << (bit & 7)
    return bytes(bits)


class Matrix:
    """The features of all rows, and training on some of them."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = rows
        self.common = common_words([row for row in rows if row.is_counted])
        places: list[int] = []
        values: list[float] = []
        ends = [0]
        for row in rows:
            for scale, group in zip(
                SCALES, features(row.reply, row.history, self.common), strict=True
            ):
                places += sorted(group)
                values += [scale / len(group) ** 0.5] * len(group)
            ends.append(len(places))
        self.features = csr_matrix((values, places, ends), shape=(len(rows), SIZE))
        self.features.sum_duplicates()
        self.is_false = np.array([row.is_false for row in rows])
        self.weight = np.array(
            [row.weight * (1.0 if row.is_counted else GENERATED_WEIGHT) for row in rows]
        )
        self.ran = np.array([row.ran for row in rows])
        self.is_counted = np.array([row.is_counted for row in rows])

    def fit(self, used: NDArray[np.bool_]) -> tuple[Vector, float]:
        """Return weights and bias; features of a single row are dropped, rare ones weigh more."""
        counts = np.bincount(self.features[used].indices, minlength=SIZE)
        rarity = np.where(counts > 1, np.log((1 + used.sum()) / (1 + counts)) + 1, 0.0) / 8
        chosen = np.flatnonzero(rarity)
        model = LogisticRegression(C=STRENGTH, max_iter=300, solver="newton-cg", tol=1e-4)
        scaled = (self.features @ diags(rarity)).tocsr()[:, chosen]
        model.fit(scaled[used], self.is_false[used], sample_weight=self.weight[used])
        weights = np.zeros(SIZE)
        weights[chosen] = model.coef_[0]
        return weights * rarity, float(model.intercept_[0])

    def cross_validate(self, groups: Sequence[str], parts: Sequence[str] | None = None) -> Vector:
        """Return scores of rows by models that were trained without the row's group."""
        names = np.array(groups)
        scores = np.full(len(self.rows), np.nan)
        allowed = np.array([parts is None or row.part in parts for row in self.rows])
        counted = self.is_counted if parts is None else self.is_counted & ~allowed
        for name in sorted({*names[counted]}):
            for ran in (False, True):
                used = (names != name) & (self.ran == ran) & allowed
                weights, bias = self.fit(used)
                scored = (names == name) & (self.ran == ran) & counted
                scores[scored] = self.features[scored] @ weights + bias
        return scores

    def threshold(self, scores: Vector, *, ran: bool) -> float:
        """Return the lowest threshold with the required precision."""
        used = np.flatnonzero((self.ran == ran) & ~np.isnan(scores))
        order = used[np.argsort(-scores[used])]
        precision = np.cumsum(self.is_false[order]) / np.arange(1, len(order) + 1)
        good = np.flatnonzero(precision[: len(order)] >= PRECISION)
        return float(scores[order[good[-1]]])

    def counts(self, flagged: NDArray[np.bool_], used: NDArray[np.bool_]) -> tuple[int, int, int]:
        """Return true positives, flagged rows and false claims among the rows used."""
        right = int((flagged & used & self.is_false).sum())
        return right, int((flagged & used).sum()), int((used & self.is_false).sum())

    def print_table(self, title: str, flagged: NDArray[np.bool_], parts: Sequence[str]) -> None:
        """Print precision and recall by part and language."""
        for part in parts:
            for locale in ("ko", "en", "both"):
                used = np.array(
                    [r.part == part and r.is_counted and locale in (r.locale, "both")
                     for r in self.rows]
                )  # fmt: skip
                print_counts(f"{title} {part} {locale}", *self.counts(flagged, used))


def print_counts(title: str, right: int, flagged: int, false: int) -> None:
    """Print precision and recall with confidence intervals."""
    print(
        f"{title:32} precision {_share(right, flagged)}  recall {_share(right, false)}", flush=True
    )


def _share(part: int, whole: int) -> str:
    interval = wilson(part, whole)
    return f"{part} of {whole}, {part / whole:.1%} [{interval.low:.0%}, {interval.high:.0%}]"


def main() -> int:
    """Train, evaluate, and write the weights."""
    rows = [row for part in PARTS for row in load_labelled(part)]
    rows += [*vary_histories(rows)]
    for name in ("situations", "voices", "reports"):
        rows += [row for locale in ("ko", "en") for row in situations(f"{name}_{locale}")]
    rows += [row for locale in ("ko", "en") for row in denials(f"denials_{locale}")]
    rows += [*single_replies(), *talk(), *right_conversations()]
    matrix = Matrix(rows)
    print(f"{len(rows):,} rows, {len(matrix.features.data):,} features in them")

    scores = matrix.cross_validate([_group(row.author) for row in rows])
    thresholds = [matrix.threshold(scores, ran=ran) for ran in (False, True)]
    limit = np.where(matrix.ran, thresholds[1], thresholds[0])
    matrix.print_table("author held out,", scores >= limit, PARTS)
    unseen = np.array([row.part in ("hard", "more") and row.is_counted for row in rows])
    right, flagged, false = matrix.counts(scores >= limit, unseen)
    print_counts("author held out, hard and more", right, flagged, false)
    clean = matrix.cross_validate([row.part for row in rows],
                            ("dev", "situations_ko", "situations_en"))  # fmt: skip
    matrix.print_table("file held out,", clean >= limit, ("hard", "more"))

    data = pack(matrix, thresholds, right / flagged, right / false)
    WEIGHTS.write_bytes(data)
    print(f"{WEIGHTS.name}: {len(data):,} bytes; thresholds {thresholds}")
    return 0


def _group(author: str) -> str:
    """Return the group that an author is held out with; the authors of `dev` form three."""
    return next((group for group in _GROUPS if author in group.split()), author)


_GROUPS = ("a1 a8 b3", "a5 a7 a10", "a2 a6 a9 b4")


def pack(matrix: Matrix, thresholds: Sequence[float], precision: float, recall: float) -> bytes:
    """Return the content of the weights file, trained on all rows."""
    both, biases = [], []
    for ran, most in zip((False, True), MOST_WEIGHTS, strict=True):
        weights, bias = matrix.fit(matrix.ran == ran)
        least = np.sort(np.abs(weights))[-most]
        both.append(np.where(np.abs(weights) >= least, weights, 0))
        biases.append(round(bias, 4))
    scale = LEVELS / max(np.quantile(np.abs(vector[vector != 0]), 0.99) for vector in both)
    plain = b"".join(
        np.clip(np.round(vector * scale), -127, 127).astype(np.int8).tobytes() for vector in both
    )
    head = {
        "biases": biases,
        "thresholds": [round(threshold, 3) for threshold in thresholds],
        "scale": round(float(scale), 4),
        "precision": round(precision, 3),
        "recall": round(recall, 3),
    }
    return json.dumps(head).encode() + b"\n" + zlib.compress(plain + matrix.common, 9)


if __name__ == "__main__":
    sys.exit(main())
