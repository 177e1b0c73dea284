"""What inspect-ai reads in a log, as one line of JSON. Runs in inspect-ai's own environment.

It answers each line of its input, which is the path of a log.
"""

import json
import sys
from typing import Any

from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample_summaries


def read(file: str) -> dict[str, Any]:
    log = read_eval_log(file)
    return {
        "listed": [each.task for each in list_eval_logs(file.rpartition("/")[0])],
        "status": log.status,
        "model": log.eval.model,
        "accuracy": log.results.scores[0].metrics["accuracy"].value,
        "summaries": [
            [each.id, each.epoch, each.error, {k: v.value for k, v in (each.scores or {}).items()}]
            for each in read_eval_log_sample_summaries(file)
        ],
        "samples": [
            {
                "id": each.id,
                "epoch": each.epoch,
                "input": each.input,
                "target": each.target,
                "scores": {name: score.value for name, score in (each.scores or {}).items()},
                "error": each.error and each.error.message,
                "messages": [
                    [
                        message.role,
                        message.text,
                        [
                            [call.function, call.arguments, call.parse_error]
                            for call in getattr(message, "tool_calls", None) or ()
                        ],
                    ]
                    for message in each.messages
                ],
                "events": [event.event for event in each.events],
                "approvals": [
                    [event.call.function, event.decision]
                    for event in each.events
                    if event.event == "approval"
                ],
                "times": [event.timestamp.isoformat() for event in each.events],
            }
            for each in log.samples or ()
        ],
    }


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(f"{json.dumps(read(line.strip()))}\n")
        sys.stdout.flush()
