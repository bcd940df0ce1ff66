# shellcheck shell=bash
# shellcheck disable=SC2034,SC2054  # used by those that source this; commas of the emulator
# What prepare, run, guest and selftest share: where things are, how an error is said, and how
# one guest is described to the emulator.  Sourced, never run.
#
# A guest has a state directory:
#   ctl/        shared with the guest: settings, command, go (in), started, status, error (out)
#   log         output of the command (only of `guest`; `run` passes it on)
#   console     the guest kernel's console
#   qemu.pid    process id of the emulator
# ctl/status exists exactly if the command ran to its end; ctl/error exists exactly if the guest
# could not be set up.  Neither exists after a power cut or a time-out.

testbed_dir=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
repo_dir=$(cd -- "$testbed_dir/../.." && pwd -P)
cache_dir=${PMSTORE_TESTBED_CACHE:-$repo_dir/build/testbed}
program=${0##*/}

readonly status_timeout=124  # as timeout(1)
readonly status_broken=125   # the testbed failed, not the command

# say WHAT WHY WHAT-TO-DO: the form of every error message.
say() {
  printf 'testbed %s: %s: %s; %s\n' "$program" "$1" "$2" "$3" >&2
}

die() {
  say "$@"
  exit "$status_broken"
}

usage_error() {
  say "$1" "$2" "see $program --help"
  exit 2
}

need_program() {  # PROGRAM PACKAGE
  PATH=$PATH:/usr/sbin:/sbin command -v "$1" >/dev/null ||
    die "cannot find $1" "package $2 is not installed" "apt-get install $2"
}

# Of the output LOG of GoogleTest programs: what a test printed before it failed or was skipped, and
# nothing of those that passed.
print_failures() {  # LOG
  awk '/^\[ RUN / { held = ""; inside = 1; next }
    /^\[       OK / { inside = 0; next }
    /^\[  (FAILED|SKIPPED)  ?\] .*\(/ { printf "%s%s\n", held, $0; inside = 0; next }
    inside { held = held "  " $0 "\n" }' "$1"
}

# Counts the tests in LOG, of which STATUS was the exit status, in one line that begins with WHAT.
# Succeeds when all passed, and at least one; ends with a status of the testbed's own.
print_counts() {  # WHAT LOG STATUS
  local what=$1 log=$2 status=$3 passed failed skipped started lost
  passed=$(grep -c '^\[       OK \]' "$log" || true)
  failed=$(grep -cE '^\[  FAILED  \] .*\([0-9]+ ms\)$' "$log" || true)
  skipped=$(grep -cE '^\[  SKIPPED \] .*\([0-9]+ ms\)$' "$log" || true)
  started=$(grep -c '^\[ RUN      \]' "$log" || true)
  lost=$((started - passed - failed - skipped))
  echo "$what: $passed passed, $failed failed, $skipped skipped, $lost not ended"
  if ((status > 1 || lost > 0 || passed == 0)); then
    tail -n 20 "$log" >&2
  fi
  ((status <= 1)) || exit "$status"
  ((failed == 0 && skipped == 0 && lost == 0 && passed > 0 && status == 0))
}

# Has the GoogleTest programs in guests run the tests I, I + N, I + 2N... of those that they have.
take_share() {  # I/N
  [[ $1 =~ ^([0-9]{1,3})/([1-9][0-9]{0,2})$ ]] || usage_error "--share $1" "not I/N, two numbers"
  ((BASH_REMATCH[1] < BASH_REMATCH[2])) || usage_error "--share $1" "I is not below N"
  export GTEST_SHARD_INDEX=${BASH_REMATCH[1]} GTEST_TOTAL_SHARDS=${BASH_REMATCH[2]}
}

# Runs tests/PROGRAM of a build over kernel verbs in a fresh eADR guest, with the options that its
# usage() describes. WHAT is what the counts begin with; FILTER holds unless --filter is given.
scenarios_over_verbs() {  # PROGRAM WHAT FILTER [OPTION...]
  local name=$1 what=$2 filter=$3 build=$repo_dir/build verbose='' log status=0 test_program
  shift 3
  while (($#)); do
    case $1 in
      --build) (($# > 1)) || usage_error "option $1" "it needs a value"; build=$2; shift 2 ;;
      --filter) (($# > 1)) || usage_error "option $1" "it needs a value"; filter=$2; shift 2 ;;
      --share) (($# > 1)) || usage_error "option $1" "it needs a value"; take_share "$2"; shift 2 ;;
      --verbose) verbose=1; shift ;;
      --help | -h) usage; exit 0 ;;
      *) usage_error "option $1" "there is no such option" ;;
    esac
  done
  [[ -x $build/tests/$name ]] ||
    die "cannot find $build/tests/$name" "it is not built" "ninja -C $build $name"
  test_program=$(cd -- "$build/tests" && pwd -P)/$name

  log=$(mktemp "${TMPDIR:-/tmp}/pmstore-$name.XXXXXX") ||
    die "cannot make a file in ${TMPDIR:-/tmp}" "no room or no permission" "set TMPDIR"
  # shellcheck disable=SC2064  # the name is needed when the function has ended
  trap "rm -f '$log'" EXIT

  # Emulation is slow and may share its processors: the times allowed are many times the usual ones.
  PMSTORE_TEST_FABRIC=verbs PMSTORE_TEST_TIMEOUT_MS=10000 \
    "$testbed_dir/run" --domain eadr --timeout 1800 -- "$test_program" --gtest_color=no \
    --gtest_filter="$filter" >"$log" 2>&1 || status=$?
  if [[ $verbose ]]; then
    cat "$log"
  else
    print_failures "$log"
  fi
  print_counts "$what" "$log" "$status"
}

# Options that describe a guest; shared by `run` and `guest start`.  Sets the guest_* variables
# and leaves the rest of the command line in `remaining`.
guest_options_help='  --domain adr|eadr      persistence domain of the NVDIMM (default adr)
  --nvdimm FILE          file behind the NVDIMM, kept afterwards and made when absent
                         (default: a temporary file, removed afterwards)
  --nvdimm-size SIZE     size of that file, as 530M: label (2M) + a multiple of 16M
                         (default 530M; an existing file keeps its own size)
  --mode devdax|fsdax    /dev/dax0.0, or ext4 mounted with -o dax at /mnt/pmem (default devdax)
  --memory SIZE          memory of the guest (default 2G)
  --smp N                CPUs of the guest (default 2)
  --timeout SECONDS      the guest is ended after this, status 124 (default 300); a boot that is
                         stuck before COMMAND is ended and repeated, at most twice
  --share HOSTDIR        host folder, writable in the guest at /share
  --env NAME[=VALUE]     environment variable for the command (PMSTORE_*, GTEST_* and PATH
                         are handed over always)
  --net listen:SOCK      Ethernet to another guest over the Unix socket SOCK; this one is
  --net connect:SOCK     10.77.0.1 (listen) or 10.77.0.2 (connect).  Only the one that connects
                         may be power-cut and started again
  --host-number N        address 10.77.0.N instead
  --verbose              kernel console to stderr'

guest_domain=adr
guest_nvdimm=
guest_nvdimm_size=530M
guest_mode=devdax
guest_memory=2G
guest_smp=2
guest_timeout=300
guest_share=
guest_net=
guest_number=
guest_verbose=
guest_env=()
remaining=()

parse_guest_options() {
  local option value
  while (($#)); do
    option=$1
    case $option in
      --) shift; break ;;
      --verbose) guest_verbose=1; shift; continue ;;
      --help | -h) usage; exit 0 ;;
      --*=*) value=${option#*=}; option=${option%%=*}; shift ;;
      --*)
        (($# > 1)) || usage_error "option $option" "it needs a value"
        value=$2; shift 2 ;;
      *) break ;;
    esac
    case $option in
      --domain) guest_domain=$value ;;
      --nvdimm) guest_nvdimm=$value ;;
      --nvdimm-size) guest_nvdimm_size=$value ;;
      --mode) guest_mode=$value ;;
      --memory) guest_memory=$value ;;
      --smp) guest_smp=$value ;;
      --timeout) guest_timeout=$value ;;
      --share) guest_share=$value ;;
      --env) guest_env+=("$value") ;;
      --net) guest_net=$value ;;
      --host-number) guest_number=$value ;;
      *) usage_error "option $option" "there is no such option" ;;
    esac
  done
  remaining=("$@")

  [[ $guest_domain == @(adr|eadr) ]] || usage_error "--domain $guest_domain" "not adr or eadr"
  [[ $guest_mode == @(devdax|fsdax) ]] || usage_error "--mode $guest_mode" "not devdax or fsdax"
  [[ $guest_smp =~ ^[1-9][0-9]?$ ]] || usage_error "--smp $guest_smp" "not a number from 1 to 99"
  [[ $guest_timeout =~ ^[1-9][0-9]{0,5}$ ]] ||
    usage_error "--timeout $guest_timeout" "not a number of seconds from 1 to 999999"
  [[ $guest_memory =~ ^[0-9]+[MG]$ ]] || usage_error "--memory $guest_memory" "not as 2G or 512M"
  [[ $guest_net == @(|listen:?*|connect:?*) ]] ||
    usage_error "--net $guest_net" "not listen:SOCK or connect:SOCK"
  ((${#guest_net} < 110)) || usage_error "--net $guest_net" "a socket name has at most 100 letters"
  if [[ -z $guest_number ]]; then
    guest_number=1
    [[ $guest_net == connect:* ]] && guest_number=2
  fi
  [[ $guest_number =~ ^[1-9][0-9]?$ ]] ||
    usage_error "--host-number $guest_number" "not a number from 1 to 99"
  if [[ -n $guest_share ]]; then
    [[ -d $guest_share ]] || usage_error "--share $guest_share" "there is no such folder"
    guest_share=$(cd -- "$guest_share" && pwd -P)
  fi
  [[ $guest_share != *,* && $guest_nvdimm != *,* && $guest_net != *,* ]] ||
    usage_error "a path with a comma" "the emulator takes it for the end of the path"
}

bytes_of() {  # SIZE as 530M -> bytes
  numfmt --from=iec "$1" 2>/dev/null
}

readonly label_bytes=$((2 << 20))
readonly nvdimm_unit=$((16 << 20))

# Makes the file behind the NVDIMM when absent, and locks it for as long as the emulator, which
# inherits the descriptor, lives: two guests on one file would ruin it.  Sets nvdimm_bytes and
# nvdimm_holds (devdax, fsdax or nothing).
#
# What it holds is read here, from the kernel's info block at 4 KiB, and not found out in the guest
# by looking for devices: those appear late on a busy host, and the guest would make anew what is
# there already.
make_nvdimm() {
  local wanted
  if [[ -s $guest_nvdimm ]]; then
    nvdimm_bytes=$(stat -L -c %s -- "$guest_nvdimm")
  else
    wanted=$(bytes_of "$guest_nvdimm_size") ||
      usage_error "--nvdimm-size $guest_nvdimm_size" "not as 530M or 2050M"
    nvdimm_bytes=$wanted
  fi
  ((nvdimm_bytes > label_bytes && (nvdimm_bytes - label_bytes) % nvdimm_unit == 0)) ||
    usage_error "NVDIMM of $nvdimm_bytes bytes" "size minus the 2M label is no multiple of 16M"
  [[ -s $guest_nvdimm ]] || truncate -s "$nvdimm_bytes" -- "$guest_nvdimm" 2>/dev/null ||
    die "cannot make $guest_nvdimm" "no room or no permission" "give another --nvdimm FILE"
  exec {nvdimm_lock}<>"$guest_nvdimm"
  flock -n "$nvdimm_lock" ||
    die "cannot use $guest_nvdimm" "another guest is using it" "stop that one first"
  case $(head -c $((4096 + 15)) -- "$guest_nvdimm" | tail -c 15 | tr -d '\0') in
    NVDIMM_DAX_INFO) nvdimm_holds=devdax ;;
    NVDIMM_PFN_INFO) nvdimm_holds=fsdax ;;
    *) nvdimm_holds= ;;
  esac
  [[ $nvdimm_holds == @(|"$guest_mode") ]] ||
    usage_error "--mode $guest_mode" "$guest_nvdimm holds $nvdimm_holds, which would be lost"
}

# Prints those of the paths that the guest's own /tmp, /run and /mnt would hide: folders, and for
# a file its folder, as programs look for things beside them.
hidden_paths() {  # PATH...
  local path folder
  for path; do
    [[ $path == /@(tmp|run|mnt)/* && $path != *[^A-Za-z0-9_./+@=-]* && -e $path ]] || continue
    folder=$(dirname -- "$path")
    [[ -d $path || $folder == /@(tmp|run|mnt) ]] || path=$folder
    printf '%s ' "$path"
  done
}

# Writes ctl/settings and ctl/command for the guest's init.
write_orders() {  # STATE COMMAND...
  local state=$1 name entry
  shift
  mkdir -p "$state/ctl"
  {
    printf 'mode=%s\nholds=%s\nnumber=%s\nshare=%s\n' "$guest_mode" "$nvdimm_holds" \
      "$guest_number" "${guest_share:+1}"
    printf 'show="'
    hidden_paths "$PWD" "$repo_dir" "$(command -v -- "$1" || true)" "${@:2}"
    printf '"\n'
  } >"$state/ctl/settings"
  {
    for name in $(compgen -e); do
      [[ $name == @(PMSTORE_*|GTEST_*|PATH|LANG|LC_*|LD_LIBRARY_PATH|*SAN_OPTIONS) ]] &&
        printf 'export %s=%q\n' "$name" "${!name}"
    done
    printf 'export HOME=/tmp USER=root TERM=dumb PMSTORE_GUEST=1\n'
    printf 'export PMSTORE_GUEST_NUMBER=%s PMSTORE_GUEST_ADDR=10.77.0.%s\n' \
      "$guest_number" "$guest_number"
    printf 'export PMSTORE_PEER_ADDR=10.77.0.%s PMSTORE_RDMA_DEVICE=rxe0 PMSTORE_GID_INDEX=1\n' \
      $((guest_number == 1 ? 2 : 1))
    printf 'export PMSTORE_DOMAIN=%s\n' "$guest_domain"
    if [[ $guest_mode == devdax ]]; then
      printf 'export PMSTORE_DAX=/dev/dax0.0\n'
    else
      printf 'export PMSTORE_FSDAX=/mnt/pmem\n'
    fi
    for entry in "${guest_env[@]}"; do
      name=${entry%%=*}
      [[ $name =~ ^[A-Za-z_][A-Za-z0-9_]*$ ]] || usage_error "--env $entry" "not NAME or NAME=VALUE"
      if [[ $entry == *=* ]]; then
        printf 'export %s=%q\n' "$name" "${entry#*=}"
      else
        printf 'export %s=%q\n' "$name" "${!name-}"
      fi
    done
    printf 'cd %q || exit 125\n' "$PWD"
    printf 'exec'
    printf ' %q' "$@"
    printf '\n'
  } >"$state/ctl/command"
}

# Fills emulator_command for a guest whose orders are written.  Its console is in STATE/console, and
# goes to CONSOLE_FILE as well.  Without ERR_FILE, standard error goes to OUT_FILE.
describe_emulator() {  # STATE CONSOLE_FILE OUT_FILE [ERR_FILE]
  local state=$1 console=$2 out=$3 err=${4-}
  local persistence=mem-ctrl accel=${PMSTORE_TESTBED_ACCEL:-tcg} net
  # Soft-RoCE copies with the kernel's memcpy. With ERMS that is 'rep movsb', which the emulator
  # does byte by byte: an aligned word could be read half written. Without ERMS it copies 8 bytes at
  # a time.
  local cpu=max,-erms,-fsrm
  [[ $guest_domain == eadr ]] && persistence=cpu
  case $accel in
    tcg) accel=tcg,thread=multi ;;
    kvm)
      [[ -w /dev/kvm ]] ||
        die "cannot use KVM" "/dev/kvm is absent or not writable" "unset PMSTORE_TESTBED_ACCEL"
      cpu=host ;;
    *) usage_error "PMSTORE_TESTBED_ACCEL=$accel" "not tcg or kvm" ;;
  esac
  case $guest_net in
    # The supervisor gives the socket its name when the program begins.
    listen:*) net=stream,id=net0,server=on,addr.type=unix,addr.path=${guest_net#*:}.boot ;;
    connect:*) net=stream,id=net0,server=off,addr.type=unix,addr.path=${guest_net#*:} ;;
    *) net=user,id=net0,restrict=on ;;
  esac
  local ethernet_address boot_options="console=ttyS0 panic=-1 nokaslr mitigations=off"
  ethernet_address=52:54:00:77:00:$(printf %02x "$guest_number")
  # A busy host can keep the emulator from its timer until the kernel thinks that it is broken.
  boot_options+=" random.trust_cpu=on tsc=reliable no_timer_check earlyprintk=ttyS0"
  local memory_limit=$(($(bytes_of "$guest_memory") + nvdimm_bytes + (2 << 30)))

  emulator_command=(
    qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot
    -pidfile "$state/qemu.pid"
    -machine "q35,nvdimm=on,nvdimm-persistence=$persistence,usb=off,vmport=off" -accel "$accel"
    -cpu "$cpu" -smp "$guest_smp" -m "$guest_memory,slots=2,maxmem=$memory_limit"
    -kernel "$cache_dir/vmlinux" -initrd "$cache_dir/initramfs"
    -append "$boot_options"
    -object "memory-backend-file,id=mem1,share=on,mem-path=$guest_nvdimm,size=$nvdimm_bytes"
    -device "nvdimm,id=nv1,memdev=mem1,label-size=$label_bytes"
    -virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"
    -virtfs "local,path=$state/ctl,mount_tag=ctl,security_model=none,multidevs=remap"
    -netdev "$net" -device "virtio-net-pci,netdev=net0,mac=$ethernet_address,romfile="
    -device virtio-serial-pci
    -chardev "file,id=out,path=$out,append=on" -device virtserialport,chardev=out,name=out
    -chardev "file,id=console,path=$console,logfile=$state/console" -serial chardev:console
  )
  if [[ $err ]]; then
    emulator_command+=(-chardev "file,id=err,path=$err,append=on"
      -device virtserialport,chardev=err,name=err)
  fi
  if [[ $guest_share ]]; then
    emulator_command+=(
      -virtfs "local,path=$guest_share,mount_tag=share,security_model=none,multidevs=remap")
  fi
}

# The last lines of the guest's console, for what went wrong there.
print_console() {  # STATE
  echo "the last lines of the guest's console:" >&2
  tr -d '\r\0' <"$1/console" 2>/dev/null | tail -n 30 | sed 's/^/  | /' >&2 || true
}

# Says why a guest ended without a status and returns the exit status for it.
explain_end() {  # STATE SUPERVISOR_STATUS
  local state=$1 ended=$2 last
  if [[ -s $state/ctl/error ]]; then
    say "guest set-up failed" "$(head -n 1 "$state/ctl/error")" \
      "run with --verbose to see its console"
    print_console "$state"
  elif ((ended == 124)); then
    say "time-out" "the guest was still running after $guest_timeout s and was ended" \
      "give a longer --timeout SECONDS"
    print_console "$state"
    return "$status_timeout"
  elif ((ended == 137)); then
    say "power cut" "the emulator was killed" "start the guest again on the same --nvdimm FILE"
    return 137
  else
    last=$(tail -n 1 "$state/emulator" 2>/dev/null) || true
    [[ $last ]] ||
      last=$(grep -a -m 1 -o 'Kernel panic.*[^[:space:]]' "$state/console" 2>/dev/null) || true
    [[ $last ]] || last=$(tr -d '\r\0' <"$state/console" 2>/dev/null | tail -n 1) || true
    say "guest ended without a status" "emulator status $ended, last words '${last:-none}'" \
      "run with --verbose to see its console"
  fi
  return "$status_broken"
}
