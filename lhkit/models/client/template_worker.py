"""Render chat templates in a process of its own, which can be ended: a template is a program.

Run as a script: each line of standard input is a JSON object with `template`, `variables`, `now`
and `max_chars`, each line of standard output an object with `text` or `error`. Nothing of lhkit is
imported, so that the process starts quickly. The environment is that of transformers: Jinja's
immutable sandbox, without HTML escapes in `tojson`.
"""

import json
import sys
from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_MEMORY_BYTES = 1 << 30


class _Generation(jinja2.ext.Extension):
    """Accepts `{% generation %}`, which training templates put around the model's text."""

    tags = {"generation"}  # noqa: RUF012 - as Jinja declares it

    def parse(self, parser: Any) -> Any:
        """Return the nodes inside of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@lru_cache(maxsize=8)
def compiled(template: str, now: str) -> jinja2.Template:
    """Return a template that is ready to render.

    Raises:
        jinja2.TemplateError: the template is invalid.
    """
    moment = datetime.fromisoformat(now)

    def raise_exception(message: str) -> NoReturn:
        raise jinja2.TemplateError(message)

    def tojson(value: Any, **options: Any) -> str:
        options.setdefault("ensure_ascii", False)
        return json.dumps(value, **options)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = tojson
    environment.globals["raise_exception"] = raise_exception
    environment.globals["strftime_now"] = moment.strftime
    return environment.from_string(template)


def _limit_memory() -> None:
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


def serve() -> None:
    """Answer requests until standard input ends."""
    _limit_memory()
    for line in sys.stdin:
        try:
            request = json.loads(line)
            template = compiled(request["template"], request["now"])
            text = template.render(**request["variables"])
            is_long = len(text) > request["max_chars"]
            error = f"its text has more than {request['max_chars']:,} characters"
            written = json.dumps({"error": error} if is_long else {"text": text})
        except MemoryError:
            written = json.dumps({"error": "it needs too much memory"})
        except Exception as error:  # noqa: BLE001 - boundary: whatever a template raises
            written = json.dumps({"error": f"{type(error).__name__}: {error}"})
        sys.stdout.write(f"{written}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve()
