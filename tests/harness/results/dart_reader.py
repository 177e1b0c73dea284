"""What a grammar of Dart reads in a file, as one line of JSON. Runs in its own environment.

`faults` are nodes that are no Dart; `kinds` are how often each kind of node is there.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import tree_sitter_dart
from tree_sitter import Language, Node, Parser


def nodes(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    yield node
    for child in node.children:
        yield from nodes(child)


sys.setrecursionlimit(10_000)
source = Path(sys.argv[1]).read_bytes()
found = list(nodes(Parser(Language(tree_sitter_dart.language())).parse(source).root_node))
faults = [[*each.start_point] for each in found if each.type == "ERROR" or each.is_missing]
told = {"faults": faults, "kinds": Counter(each.type for each in found)}
sys.stdout.write(json.dumps(told))
