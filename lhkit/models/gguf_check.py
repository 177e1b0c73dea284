"""A script: what the folder that a file was made of would have written in the file's place.

It reads each prompt with the reply that the file gave, and tells for each token of the reply which
one the folder's model holds for likeliest there: so an early difference does not hide the rest. Run
in a process of its own, for its memory. It uses no other part of lhkit; needs torch, transformers.
"""

import json
import sys
from pathlib import Path
from typing import Any


def check(folder: Path, asked: Path, told: Path) -> None:
    """Write to `told` a list of objects, one for each of `asked`.

    Args:
        folder: a model as transformers loads one.
        asked: a list of objects: `prompt` and `reply`, ids of tokens.
        told: `own`, the likeliest token at each place of the reply, and `gaps`, by how much its
            log-probability is above that of the token which stands there.
    """
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found: list[dict[str, list[Any]]] = []
    for each in json.loads(asked.read_text(encoding="utf-8")):
        prompt, reply = each["prompt"], each["reply"]
        with torch.inference_mode():
            read = model(torch.tensor([prompt + reply]), logits_to_keep=len(reply) + 1)
        odds = read.logits[0, :-1].log_softmax(-1)
        best, own = odds.max(-1)
        written = odds.gather(-1, torch.tensor(reply)[:, None])[:, 0]
        found.append({"own": own.tolist(), "gaps": (best - written).tolist()})
    told.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    check(*map(Path, sys.argv[1:]))
