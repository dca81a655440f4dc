# Sourced by up.sh and down.sh: which processes are ours, and how to wait for and stop them.
# A daemon is known by its pid file *and* by a word of its command line, so that a reused pid is never touched.

# running PID: the process lives; a zombie counts as dead (process 1 of a container may reap late)
running() {
  local stat
  stat=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) || return 1
  [ -n "$stat" ] && [ "${stat%% *}" != Z ]
}

# pid_of PIDFILE WORD: prints the pid in PIDFILE where that process runs and its command line holds WORD
pid_of() {
  local pid
  pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] && running "$pid" || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$2" && echo "$pid"
}

# wait_for SECONDS COMMAND...: repeats COMMAND every 50 ms until it succeeds
wait_for() {
  local tries=$(($1 * 20))
  shift
  until "$@" >/dev/null 2>&1; do
    [ $((tries -= 1)) -gt 0 ] || return 1
    sleep 0.05
  done
}

# stop PIDFILE WORD SECONDS: SIGTERM, then SIGKILL after SECONDS; nothing where it does not run
stop() {
  local pid
  if pid=$(pid_of "$1" "$2"); then
    kill -TERM "$pid" 2>/dev/null
    if ! wait_for "$3" gone "$pid"; then
      echo "down.sh: process $pid ($2) did not end in $3 s and is killed" >&2
      kill -KILL "$pid" 2>/dev/null
    fi
  fi
  rm -f "$1"
}

gone() { ! running "$1"; }

# job_processes STATE: pids of jobs' processes of this cluster, and of no other: SLURM's step daemons that hold a file
# under STATE open, and every process whose environment names a job and this cluster's slurm.conf (also orphans of a
# step daemon that was killed). Callers of this script are left out: they may have the same variables.
job_processes() {
  local state=$1 pid ancestors=" " up=$$
  while [ "${up:-0}" -gt 1 ]; do
    ancestors+="$up "
    up=$(sed 's/.*) //' "/proc/$up/stat" 2>/dev/null | cut -d' ' -f2)
  done
  for pid in /proc/[0-9]*; do
    pid=${pid#/proc/}
    case $ancestors in *" $pid "*) continue ;; esac
    if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = slurmstepd ]; then
      find "/proc/$pid/fd" -lname "$state/*" 2>/dev/null | grep -q . && echo "$pid"
    elif grep -qzxF "SLURM_CONF=$state/etc/slurm.conf" "/proc/$pid/environ" 2>/dev/null &&
      grep -qz '^SLURM_JOB_ID=' "/proc/$pid/environ" 2>/dev/null; then
      echo "$pid"
    fi
  done
}
