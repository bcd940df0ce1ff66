#!/bin/bash
# usage: style.sh ROOT cxx|shell: clang-format over all C++, or shellcheck over all shell scripts.
set -euo pipefail
root=$1

list() {
  find "$root" -mindepth 1 \( -name build -o -name .git \) -prune -o -type f "$@" -print0
}

need() {  # PROGRAM
  command -v "$1" >/dev/null && return
  echo "style.sh: cannot find $1: it is not installed; run tools/install-deps" >&2
  exit 1
}

case $2 in
  cxx)
    need clang-format
    mapfile -d '' -t sources < <(list \( -name '*.h' -o -name '*.cc' \))
    clang-format --style=file --dry-run --Werror --ferror-limit=1 "${sources[@]}" || {
      echo "to mend: git ls-files '*.h' '*.cc' | xargs clang-format -i" >&2
      exit 1
    }
    ;;
  shell)
    need shellcheck
    scripts=()
    while IFS= read -r -d '' file; do
      IFS= read -r first <"$file" || true
      [[ $first =~ ^'#!'.*/(ba)?sh( |$) || $file == *.sh ]] && scripts+=("$file")
    done < <(list ! -name '*.*' && list -name '*.sh')
    shellcheck --external-sources "${scripts[@]}"
    ;;
esac
