# shellcheck shell=bash
# What ./test and ./demo stand on: a Python, and environments that are made once. Sourced, from the root.

readonly SETUP_WAIT_MAX_S=900

# The same surroundings everywhere: what the caller has set must not decide what is seen here.
export PATH="${PATH:-/usr/bin:/bin}:/usr/local/bin:/usr/local/sbin:/usr/sbin:/sbin"
export LC_ALL=C.UTF-8 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP VIRTUAL_ENV QUEUE_MAXSIZE WORKER_CONCURRENCY
for name in $(compgen -e FOREBAY_ || true); do unset "$name"; done

say() { printf '%s\n' "$*"; }

# Bounded: SIGINT first, so that pytest says where it was and fixtures clean up; SIGKILL when that is ignored.
bounded() { local wait_max_s=$1; shift; timeout --foreground --signal=INT --kill-after=20 "$wait_max_s" "$@" 9>&-; }

find_python() {
  local candidate
  for candidate in python3 python3.11 python3.12 python3.13 python3.14 /usr/local/bin/python3* \
    /opt/python*/bin/python3 "${HOME:-/nonexistent}"/.pyenv/versions/*/bin/python3 \
    "${HOME:-/nonexistent}"/.local/bin/python3*; do
    candidate=$(command -v "$candidate" 2>/dev/null) || continue
    if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s\n' "$candidate"
      return
    fi
  done
  return 1
}

# One line that changes when, and only when, the environment must be made anew.
requirements_key() {
  "$python" - "$@" <<'PY'
import hashlib, json, pathlib, sys, tomllib

project = tomllib.loads(pathlib.Path("pyproject.toml").read_text())
parts = [sys.version, str(pathlib.Path.cwd()), json.dumps([project["project"], project["dependency-groups"]])]
parts += [pathlib.Path(name).read_text() for name in sys.argv[1:]]
print(hashlib.sha256("\0".join(parts).encode()).hexdigest())
PY
}

# make_venv DIR KEY PIP_ARGUMENTS...: an environment with these things in it, reused while the key is the same.
make_venv() {
  local dir=$1 key=$2; shift 2
  if [ -x "$dir/bin/python" ] && [ "$(cat "$dir/key" 2>/dev/null)" = "$key" ]; then return; fi
  say "    making $dir (once; a minute or two)"
  rm -rf "$dir"
  "$python" -m venv "$dir"
  bounded "$SETUP_WAIT_MAX_S" "$dir/bin/python" -m pip install -q --upgrade "pip>=25.1"
  bounded "$SETUP_WAIT_MAX_S" "$dir/bin/python" -m pip install -q "$@"
  printf '%s\n' "$key" >"$dir/key"
}
