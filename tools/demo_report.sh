# What tools/demo prints beside its steps: the progress of a build, and the summary. Sourced by it.
# shellcheck shell=bash

# "12 of 345 built, last target pmstore_log: writer.cc" from the last line that ninja has printed,
# or nothing when there is none yet. Ninja prints a step when the step has ended.
build_state() {  # LOG
  local line state=
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\]\ (.*)$ ]] || continue
    local done=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]} what=${BASH_REMATCH[3]}
    state="$done of $all built"
    if [[ $what =~ CMakeFiles/([^/]+)\.dir/(.*)\.o$ ]]; then
      state+=", last target ${BASH_REMATCH[1]}: ${BASH_REMATCH[2]##*/}"
    elif [[ $what =~ ^Linking\ .*\ ([^ ]+)$ ]]; then
      state+=", last linked ${BASH_REMATCH[1]##*/}"
    fi
  done <"$1"
  printf '%s' "$state"
}

# A line every PERIOD seconds (a terminal: one line that is refreshed) until the process ends.
# SILENT is what is said while the log tells nothing.
follow_build() {  # PID LOG PERIOD SILENT
  local pid=$1 log=$2 period=$3 silent=$4 began=${EPOCHREALTIME/[.,]/} said=0 state now
  local period_us
  period_us=$(LC_ALL=C awk -v s="$period" 'BEGIN { printf "%d", s * 1e6 }')
  while kill -0 "$pid" 2>/dev/null; do
    if [[ -t 1 ]]; then
      state=$(build_state "$log")
      printf '\r      %-70.70s' "${state:-$silent}"
    else
      now=$((${EPOCHREALTIME/[.,]/} - began))
      if ((now >= (said + 1) * period_us)); then
        said=$((now / period_us))
        state=$(build_state "$log")
        printf '      %d s: %s\n' $((now / 1000000)) "${state:-$silent}"
      fi
    fi
    sleep 0.3
  done
  [[ -t 1 ]] && printf '\r%76s\r' ''
  return 0
}

# "a disk (ext4)", "memory (tmpfs)": what is below a folder.
medium_of() {  # FOLDER
  local type
  type=$(stat -f -c %T -- "$1")
  case $type in
    tmpfs | ramfs) printf 'memory (%s)' "$type" ;;
    *) printf 'a disk (%s)' "$type" ;;
  esac
}

# Where a transaction's time goes. MSYNC_US is the median of an msync in the folder; the server has
# made MSYNCS of them for COMMITTED transactions, at RATE a second. Both were measured one after the
# other, so that their product is only about right, and may come out above all of the time.
explain_time() {  # FOLDER MEDIUM MSYNC_US MSYNCS COMMITTED RATE P50_US
  LC_ALL=C awk -v folder="$1" -v medium="$2" -v us="$3" -v msyncs="$4" -v committed="$5" \
    -v rate="$6" -v p50="$7" -v indent="                  " 'BEGIN {
      each = committed > 0 ? msyncs / committed : 0
      share = each * rate * us / 1e6
      printf "  the pool is in  %s: %s\n", folder, medium
      printf "  msync there     %.1f us (median), %.1f of them for each transaction\n", us, each
      if (medium ~ /^memory/) {
        printf "%smsync writes nothing here: it is about %.1f%% of the time;\n", indent, share * 100
        printf "%swhat is in memory is lost at a reboot\n", indent
      } else if (share >= 0.95) {
        printf "%smsync on this disk is what takes the time: about all of the\n", indent
        printf "%s%.0f us of a transaction\n", indent, p50
      } else {
        how = "takes part of the time"
        if (share >= 0.5) how = "is what takes the time"
        printf "%smsync on this disk %s: about %.0f%% of it,\n", indent, how, share * 100
        printf "%sor %.0f of the %.0f us of a transaction\n", indent, share * p50, p50
      }
    }'
}

# Commands that can be pasted, one a line: a first store of one's own, and the other medium.
try_next() {  # DEMO BIN FOLDER MEDIUM
  local pool=$3/my-pool other=/dev/shm why='the same in memory'
  [[ -e $pool ]] && pool+=-$$
  [[ $4 == memory* ]] && other=/var/tmp why='the same on a disk'
  cat <<END
  export PATH=$(printf '%q' "$2"):\$PATH PMSTORE_URI=local:$(printf '%q' "$pool")
  pmstore pool create $(printf '%q' "$pool") --size 64M
  pmstore kv put alice 100
  pmstore kv get alice
  pmstore bench smallbank --accounts 1000 --seconds 2
  rm $(printf '%q' "$pool")
  $(printf '%q' "$1") --dir $other  # $why
END
}
