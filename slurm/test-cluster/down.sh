#!/bin/bash
# down.sh STATE [--purge]: cancels the jobs of the cluster in STATE, stops exactly the daemons that up.sh started there, and
# ends what jobs have left behind. Idempotent. --purge removes STATE as well.
set -uo pipefail
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/daemons.sh"
if [ $# -lt 1 ] || [ $# -gt 2 ] || { [ $# -eq 2 ] && [ "$2" != --purge ]; }; then
  echo "usage: down.sh STATE [--purge]" >&2
  exit 1
fi
if [ ! -d "$1" ]; then
  echo "down.sh: $1 does not exist, nothing to stop"
  exit 0
fi
STATE=$(cd -- "$1" && pwd -P)
if [ ! -e "$STATE/etc" ] || [ ! -e "$STATE/munge" ]; then
  echo "down.sh: $STATE is not a state folder of up.sh" >&2
  exit 1
fi
export SLURM_CONF=$STATE/etc/slurm.conf

if pid_of "$STATE/run/slurmctld.pid" "$SLURM_CONF" >/dev/null && timeout 5 scontrol ping >/dev/null 2>&1; then
  timeout 10 scancel --quiet --state=PENDING --user="$(id -un)" 2>/dev/null
  timeout 10 scancel --quiet --user="$(id -un)" 2>/dev/null
  # jobs end by themselves where a slurmd is there to end them; what is left is killed below
  idle() { [ -z "$(timeout 5 squeue -h -t R,CG,S)" ] || ! nodes_up; }
  nodes_up() {
    local pid_file
    for pid_file in "$STATE"/run/slurmd.*.pid; do pid_of "$pid_file" "$SLURM_CONF" >/dev/null && return 0; done
    return 1
  }
  wait_for 8 idle
fi
for pid_file in "$STATE"/run/slurmd.*.pid; do
  [ ! -e "$pid_file" ] || stop "$pid_file" "$SLURM_CONF" 10
done
stop "$STATE/run/slurmctld.pid" "$SLURM_CONF" 15
stop "$STATE/run/slurmdbd.pid" slurmdbd 15
stop "$STATE/run/mariadbd.pid" "$STATE/sql" 20
stop "$STATE/munge/munged.pid" "$STATE/munge/munge.socket" 5
for pid in $(job_processes "$STATE"); do
  kill -KILL "$pid" 2>/dev/null
done
[ "${2:-}" != --purge ] || rm -rf -- "$STATE"
echo "down.sh: stopped"
