"""The reference MCP servers from npm, pinned and installed once into lhkit's cache."""

import json
import shutil
import subprocess
from pathlib import Path

from filelock import FileLock

from lhkit.settings import load_settings

VERSION = "2026.8.31"
PACKAGES = {f"@modelcontextprotocol/server-{name}": VERSION for name in ("filesystem", "memory")}


def npm_environment() -> dict[str, str]:
    """Return the environment that makes npm use its cache, independent of HOME."""
    cache = load_settings().cache_dir / "tests-npm" / "cache"
    return {"npm_config_cache": str(cache), "npm_config_prefer_offline": "true"}


def server(name: str) -> str:
    """Return the command of a reference server, `filesystem` or `memory`."""
    folder = load_settings().cache_dir / "tests-npm" / VERSION
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / "node_modules" / ".bin" / f"mcp-server-{name}"
    with FileLock(folder / ".lock"):
        if not command.exists():
            _install(folder)
    return str(command)


def _install(folder: Path) -> None:
    npm = shutil.which("npm")
    assert npm, "no npm: `make nightly` installs it"
    (folder / "package.json").write_text(json.dumps({"dependencies": PACKAGES}), encoding="utf-8")
    subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts"],
        cwd=folder,
        check=True,
        timeout=240,
        capture_output=True,
    )
