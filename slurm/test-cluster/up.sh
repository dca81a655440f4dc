#!/bin/bash
# up.sh STATE [options]: a real one-machine SLURM cluster in the folder STATE, without systemd; nothing in /etc is touched.
#
#   --acct shim|dbd      what answers sacct: a stand-in that reads slurmctld's memory (default; starts in under a second),
#                        or slurmdbd with a private MariaDB (the real thing; about 10 s)
#   --max-array-size N   MaxArraySize: the highest index of a job array is N - 1 (default 1001)
#   --nodes N            slurmd daemons, all on this machine (default 1)
#   --cpus N             CPUs declared per node, may exceed the real ones (default 2)
#   --mem MB             memory declared per node (default 2000)
#   --gpus N             pretended GPUs per node (default 2)
#   --user-signal 0|1    preemption sends the job's own signal before it is stopped (default 1)
#   --grace S            seconds between that signal and the end, in partition "preempt" (default 15)
#   --kill-wait S        seconds from SIGTERM to SIGKILL (default 5)
#   --requeue-wait S     how long a requeued job must wait; above kill-wait + 3 (default 10)
#   --extra 'Key=Value'  one more line of slurm.conf (repeatable)
#
# Two partitions: "gpu" (default) and "preempt", whose jobs are requeued when one in "gpu" needs the place.
# Idempotent: what runs stays, what died is started; without options those of the last time are used. Afterwards:
#   . STATE/env.sh
set -euo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/daemons.sh"
. "$HERE/configuration.sh"
die() {
  echo "up.sh: $*" >&2
  exit 1
}
usage="usage: up.sh STATE [options]; the options are listed at the head of $HERE/up.sh"
[ $# -ge 1 ] || die "$usage"
case $1 in -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" && exit 0 ;; -*) die "$usage" ;; esac
umask 022
mkdir -p -- "$1"
STATE=$(cd -- "$1" && pwd -P)
shift
[ ${#STATE} -le 80 ] || die "the path of the state folder is too long for a unix socket (80 characters): $STATE"
case $STATE in *[!A-Za-z0-9_./-]*) die "slurm.conf cannot hold this path; use letters, digits, '_', '.', '-': $STATE" ;; esac

if [ $# -eq 0 ] && [ -s "$STATE/etc/options" ]; then
  mapfile -t saved <"$STATE/etc/options"
  set -- "${saved[@]}"
fi
OPTIONS=("$@")
ACCT=shim NODES=1 CPUS=2 MEM=2000 GPUS=2 USER_SIGNAL=1 GRACE=15 KILL_WAIT=5 REQUEUE_WAIT=10 MAX_ARRAY_SIZE=1001 EXTRA=""
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || die "option $1 needs a value"
  case $1 in
    --acct) ACCT=$2 ;;
    --max-array-size) MAX_ARRAY_SIZE=$2 ;;
    --nodes) NODES=$2 ;;
    --cpus) CPUS=$2 ;;
    --mem) MEM=$2 ;;
    --gpus) GPUS=$2 ;;
    --user-signal) USER_SIGNAL=$2 ;;
    --grace) GRACE=$2 ;;
    --kill-wait) KILL_WAIT=$2 ;;
    --requeue-wait) REQUEUE_WAIT=$2 ;;
    --extra) EXTRA+="$2"$'\n' ;;
    *) die "unknown option $1" ;;
  esac
  shift 2
done
case $ACCT in shim | dbd) ;; *) die "--acct is shim or dbd, not '$ACCT'" ;; esac
for number in "$NODES" "$CPUS" "$MEM" "$GPUS" "$USER_SIGNAL" "$GRACE" "$KILL_WAIT" "$REQUEUE_WAIT" "$MAX_ARRAY_SIZE"; do
  case $number in '' | *[!0-9]*) die "not a number: '$number'" ;; esac
done

needed() { # PACKAGES COMMAND...
  local packages=$1 command
  shift
  for command in "$@"; do
    command -v "$command" >/dev/null || die "$command is missing: apt-get install -y --no-install-recommends $packages"
  done
}
needed "slurmctld slurmd slurm-client munge" munged slurmctld slurmd sinfo
[ "$ACCT" = shim ] || needed "slurmdbd mariadb-server-core mariadb-client-core" slurmdbd mariadbd mariadb-install-db

ME=$(id -un)
HOST=$(hostname -s)
# SLURM binds to what the host name resolves to, so only a name that resolves to 127.x can be bound to loopback alone.
case $(getent ahostsv4 "$HOST" | awk 'NR == 1 {print $1}') in
  127.*) BIND=CommunicationParameters=NoInAddrAny,NoCtldInAddrAny ;;
  *)
    BIND=""
    echo "up.sh: '$HOST' does not resolve to 127.x, so the daemons listen on every address (add '127.0.0.1 $HOST' to /etc/hosts)" >&2
    ;;
esac

mkdir -p "$STATE"/{etc,run,log,spool,ctld,munge,dev,bin}
chmod 700 "$STATE"
exec 9>"$STATE/run/lock" # two calls at once make one cluster; daemons do not inherit it (9>&-)
flock -w 120 9 || die "another up.sh holds $STATE/run/lock"

# ---- ports: free ones, below the range from which the kernel picks, kept for the life of STATE
if [ "$(wc -w 2>/dev/null <"$STATE/etc/ports" || echo 0)" -lt $((3 + NODES)) ]; then
  ports=()
  while [ ${#ports[@]} -lt $((3 + NODES)) ]; do
    port=$((15000 + RANDOM % 17000))
    case " ${ports[*]} " in *" $port "*) continue ;; esac
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || ports+=("$port")
  done
  echo "${ports[*]}" >"$STATE/etc/ports"
fi
read -r PORT_CTLD PORT_DBD PORT_SQL nodes <"$STATE/etc/ports"
read -ra PORT_NODES <<<"$nodes"

# ---- munge: a key and a socket of its own
SOCKET=$STATE/munge/munge.socket
if [ ! -s "$STATE/munge/munge.key" ]; then
  (umask 077 && head -c 1024 /dev/urandom >"$STATE/munge/munge.key")
fi
if ! pid_of "$STATE/munge/munged.pid" "$SOCKET" >/dev/null; then
  rm -f "$SOCKET" "$SOCKET.lock"
  # --force: without it munged refuses a socket below a folder of mode 700
  munged --force --socket="$SOCKET" --key-file="$STATE/munge/munge.key" --pid-file="$STATE/munge/munged.pid" \
    --seed-file="$STATE/munge/munged.seed" --log-file="$STATE/munge/munged.log" --num-threads=2 \
    </dev/null >>"$STATE/munge/munged.out" 2>&1 9>&- || die "munged does not start: $(tail -2 "$STATE/munge/munged.out")"
fi
wait_for 10 sh -c "munge -S '$SOCKET' -n | unmunge -S '$SOCKET'" || die "munged does not answer, see $STATE/munge/munged.log"

# ---- configuration
slurm_conf >"$STATE/etc/slurm.conf.new"
gres_conf >"$STATE/etc/gres.conf"
if pid_of "$STATE/run/slurmctld.pid" "$STATE/etc/slurm.conf" >/dev/null && ! cmp -s "$STATE/etc/slurm.conf.new" "$STATE/etc/slurm.conf"; then
  die "a cluster with other options runs in $STATE: stop it first with down.sh $STATE"
fi
mv "$STATE/etc/slurm.conf.new" "$STATE/etc/slurm.conf"
[ ${#OPTIONS[@]} -eq 0 ] && : >"$STATE/etc/options" || printf '%s\n' "${OPTIONS[@]}" >"$STATE/etc/options"
export SLURM_CONF=$STATE/etc/slurm.conf

# ---- accounting
start_database() {
  mkdir -p "$STATE/sql"
  if ! pid_of "$STATE/run/mariadbd.pid" "$STATE/sql" >/dev/null; then
    if [ ! -d "$STATE/sql/mysql" ]; then
      mariadb-install-db --no-defaults --user="$ME" --datadir="$STATE/sql" --skip-test-db --auth-root-authentication-method=normal \
        >"$STATE/log/mariadb-install.log" 2>&1 || die "mariadb-install-db failed, see $STATE/log/mariadb-install.log"
    fi
    cat >"$STATE/etc/init.sql" <<SQL
CREATE DATABASE IF NOT EXISTS slurm_acct_db;
CREATE USER IF NOT EXISTS 'slurm'@'127.0.0.1' IDENTIFIED BY 'slurm';
GRANT ALL ON slurm_acct_db.* TO 'slurm'@'127.0.0.1';
SQL
    # a database that lives for a test run: no syncing to disk
    setsid mariadbd --no-defaults --user="$ME" --datadir="$STATE/sql" --socket="$STATE/run/mariadbd.sock" \
      --pid-file="$STATE/run/mariadbd.pid" --bind-address=127.0.0.1 --port="$PORT_SQL" --skip-name-resolve \
      --init-file="$STATE/etc/init.sql" --skip-log-bin --performance-schema=OFF \
      --innodb-buffer-pool-size=64M --innodb-log-file-size=16M --innodb-lock-wait-timeout=900 \
      --innodb-flush-log-at-trx-commit=0 --innodb-flush-method=nosync --innodb-doublewrite=0 --sync-frm=0 \
      </dev/null >"$STATE/log/mariadbd.log" 2>&1 9>&- &
    wait_for 30 bash -c "exec 3<>/dev/tcp/127.0.0.1/$PORT_SQL" || die "mariadbd did not start, see $STATE/log/mariadbd.log"
  fi
  (umask 077 && slurmdbd_conf >"$STATE/etc/slurmdbd.conf")
  if ! pid_of "$STATE/run/slurmdbd.pid" slurmdbd >/dev/null; then
    rm -f "$STATE/run/slurmdbd.pid"
    slurmdbd </dev/null >>"$STATE/log/slurmdbd.out" 2>&1 9>&- || die "slurmdbd does not start: $(tail -3 "$STATE/log/slurmdbd.out")"
  fi
  wait_for 60 sacctmgr -n show cluster || die "slurmdbd does not answer, see $STATE/log/slurmdbd.log"
  if ! sacctmgr -n show cluster format=cluster%20 | grep -qw test; then
    sacctmgr -i add cluster test >/dev/null
    sacctmgr -i add account main Cluster=test >/dev/null
    sacctmgr -i add user "$ME" Account=main Cluster=test >/dev/null
  fi
}
if [ "$ACCT" = dbd ]; then
  rm -f "$STATE/bin/sacct"
  start_database
else
  install -m 755 "$HERE/sacct" "$STATE/bin/sacct"
fi

# ---- controller and nodes
if ! pid_of "$STATE/run/slurmctld.pid" "$SLURM_CONF" >/dev/null; then
  rm -f "$STATE/run/slurmctld.pid"
  slurmctld -f "$SLURM_CONF" </dev/null >>"$STATE/log/slurmctld.out" 2>&1 9>&- || die "slurmctld does not start: $(tail -3 "$STATE/log/slurmctld.out")"
fi
for ((node = 1; node <= NODES; node++)); do
  if ! pid_of "$STATE/run/slurmd.n$node.pid" "$SLURM_CONF" >/dev/null; then
    rm -f "$STATE/run/slurmd.n$node.pid"
    mkdir -p "$STATE/spool/n$node"
    slurmd -f "$SLURM_CONF" -N "n$node" </dev/null >>"$STATE/log/slurmd.n$node.out" 2>&1 9>&- || die "slurmd n$node does not start: $(tail -3 "$STATE/log/slurmd.n$node.out")"
  fi
done

{
  echo "export SLURM_CONF=$SLURM_CONF"
  echo "case :\$PATH: in *:$STATE/bin:*) ;; *) export PATH=$STATE/bin:\$PATH ;; esac"
} >"$STATE/env.sh"

ready() { [ "$(sinfo -h -N -p gpu -t idle,mix,alloc -o %N 2>/dev/null | sort -u | wc -l)" -eq "$NODES" ]; }
wait_for 60 ready || {
  sinfo -N -l >&2 || true
  sinfo -R >&2 || true
  die "the nodes are not ready, see $STATE/log"
}
echo "up.sh: ready. Use it with:  . $STATE/env.sh"
