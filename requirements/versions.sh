#!/usr/bin/env bash
# Run the tests without servers and browsers on each Python that is found here, then with the lowest versions that lhkit allows: `make versions`.
# Without vLLM and the extra `finetune`, but with the pyarrow of the latter, which reads tables of calls.
# The environments are made anew in .versions; `requirements/versions.sh 3.13 lowest` runs some of them.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
extras=local,notebook,eval,mcp,ray
PATH=$PATH$(printf ':%s' "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin)
export PATH UV_PYTHON_DOWNLOADS=never PYTHONPATH=$PWD
tests='not slow and not browser and not model and not nightly'
result=0

suite() { # NAME PYTHON [more words for uv pip install]
  local name=$1 python=$2
  shift 2
  "$uv" venv --quiet --clear --python "$python" ".versions/$name"
  "$uv" pip install --quiet --python ".versions/$name" -e ".[$extras]" --group dev pyarrow "$@"
  ".versions/$name/bin/python" --version
  ".versions/$name/bin/python" -m pytest -q -p no:cacheprovider -m "$tests" || { result=1; failed="${failed-} $name"; }
}

[ $# -gt 0 ] || set -- 3.11 3.12 3.13 3.14 lowest
for name; do
  if [ "$name" = lowest ]; then
    mkdir -p .versions
    "$uv" pip compile --quiet pyproject.toml --extra ${extras//,/ --extra } --resolution lowest-direct \
      --python-version 3.11 -o .versions/lowest.txt
    suite lowest 3.11 --constraints .versions/lowest.txt
  elif found=$("$uv" python find --system "$name" 2>/dev/null); then
    suite "$name" "$found"
  else
    missing="${missing-} $name"
  fi
done
echo "versions: not found here:${missing- none}; failed:${failed- none}"
exit $result
