# The last screen of tools/demo: files that programs write through a mount outlive a killed server.
# Sourced by it; uses its work, bin, uri, step(), fail(), start_server() and kill_server().
# shellcheck shell=bash disable=SC2034,SC2154

mount=   # the process of the mount
writer=  # the shell that writes

# False: nothing can be mounted here; work/mount.err has a line that says why.
mount_files() {  # DIR
  "$bin/pmstore" fs mount "$uri" "$1" -f >"$work/mount" 2>"$work/mount.err" &
  mount=$!
  while [[ ! -s $work/mount ]]; do
    if ! kill -0 "$mount" 2>/dev/null; then
      mount=
      return 1
    fi
    sleep 0.05
  done
}

# At the end of a demo that failed or was interrupted, also without a server. Nothing below the
# mount is touched.
abandon_files() {  # DIR
  [[ -z $writer ]] || kill -KILL "$writer" 2>/dev/null || true
  [[ $mount ]] || return 0
  fusermount3 -u -z "$1" 2>/dev/null || umount -l "$1" 2>/dev/null || true
  kill -KILL "$mount" 2>/dev/null || true
}

# Numbers, a line each, every one written when the one before is durable, until the file ENOUGH is
# there. Then that file says how many.
write_numbers() {  # FILE ENOUGH
  # shellcheck disable=SC2016  # that shell expands it
  exec sh -c 'i=0
    while [ ! -e "$2" ]; do i=$((i + 1)); echo "$i" || exit 1; done >"$1"
    echo "$i" >"$2"' sh "$1" "$2"
}

over_the_mount() {  # FOLDER DIR
  cp -r "$1" "$2/copy" || fail 'cp failed'
  step "the files are mounted at $2; cp has copied $files files to it"
  write_numbers "$2/numbers" "$work/enough" 2>"$work/writer.err" &
  writer=$!
  sleep 2
  kill_server
  step "${bold}a shell writes there line by line; the server is killed with SIGKILL${plain}"
  sleep 1
  start_server "$work/files-pool" "$work/server4"
  sleep 1
  : >"$work/enough"
  wait "$writer" || fail 'the shell could not go on writing' "$work/writer.err"
  writer=
  local lines
  lines=$(<"$work/enough")
  step 'it is started again; the mount is the same one, and the shell has gone on writing'
  diff -r "$1" "$2/copy" >"$work/diff" || fail 'the copies differ' "$work/diff"
  seq "$lines" | cmp - "$2/numbers" >"$work/diff" 2>&1 || fail 'lines are lost' "$work/diff"
  step "every byte of $files files and $lines lines is there"
  fusermount3 -u "$2" || fail 'the files cannot be unmounted'
  wait "$mount" || fail 'the mount did not end in order' "$work/mount.err"
  mount=
  survived="$files files by cp, $lines lines by a shell that wrote meanwhile"
}

without_a_mount() {  # FOLDER
  "$bin/pmstore" fs put --uri "$uri" -r "$1" /copy >"$work/put" 2>&1 ||
    fail 'the files cannot be stored' "$work/put"
  step "pmstore fs put has stored $files files"
  kill_server
  step "${bold}the server is killed with SIGKILL${plain}"
  start_server "$work/files-pool" "$work/server4"
  "$bin/pmstore" fs get --uri "$uri" -r /copy "$work/copy" >"$work/get" 2>&1 ||
    fail 'the files cannot be fetched' "$work/get"
  diff -r "$1" "$work/copy" >"$work/diff" || fail 'the copies differ' "$work/diff"
  step "it is started again, and every byte of $files files is there"
  survived="$files files by pmstore fs put; nothing can be mounted here"
}

# Leaves what `pmstore fs check` says in work/check, and in `survived` what was compared.
files_screen() {  # FOLDER
  files=$(find "$1" -type f | wc -l)
  "$bin/pmstore" pool create "$work/files-pool" --size 256M --file-bytes 64M \
    >"$work/create" 2>&1 || fail 'no pool for files can be made' "$work/create"
  start_server "$work/files-pool" "$work/server3"
  step 'pmstored serves another pool, with room for files'
  mkdir "$work/files"
  if mount_files "$work/files"; then
    over_the_mount "$1" "$work/files"
  else
    step "nothing can be mounted here: $(<"$work/mount.err")"
    without_a_mount "$1"
  fi
  "$bin/pmstore" fs check --uri "$uri" >"$work/check" 2>&1 ||
    fail 'pmstore fs check found damage' "$work/check"
  step "pmstore fs check: $(<"$work/check")"
}
