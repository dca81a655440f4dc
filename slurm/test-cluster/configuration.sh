# Sourced by up.sh: the configuration files of the test cluster, printed from the variables that up.sh has set.
# Every value that is not SLURM's default says why.

slurm_conf() {
  cat <<CONF
ClusterName=test
SlurmctldHost=$HOST(127.0.0.1)
SlurmctldPort=$PORT_CTLD
SlurmUser=$ME
SlurmdUser=$ME
StateSaveLocation=$STATE/ctld
SlurmdSpoolDir=$STATE/spool/%n
SlurmctldPidFile=$STATE/run/slurmctld.pid
SlurmdPidFile=$STATE/run/slurmd.%n.pid
SlurmctldLogFile=$STATE/log/slurmctld.log
SlurmdLogFile=$STATE/log/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=info
MailProg=/bin/true
$BIND

# A requeued job may not start before its old credential has expired: 120 s by default, a long wait for a test. It must
# stay above KillWait + 3, or a job taken off a failed node starts beside its dying copy ("Duplicate jobid", node drained).
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$SOCKET,cred_expire=$REQUEUE_WAIT

# No cgroups, no task binding: works in a container. linuxproc ends jobs faster than pgid (4 s less per job).
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=2
JobAcctGatherParams=OverMemoryKill,UsePss

# Schedule at once: a test waits for each of these periods.
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,sched_interval=5,batch_sched_delay=1
PriorityType=priority/basic
DefMemPerCPU=100
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
EnforcePartLimits=ALL
MaxArraySize=$MAX_ARRAY_SIZE
MaxJobCount=10000

# Short timers; less than 5 s between SIGTERM and SIGKILL is not obeyed.
KillWait=$KILL_WAIT
InactiveLimit=0
SlurmctldTimeout=10
SlurmdTimeout=15
ReturnToService=2
SlurmdParameters=config_overrides
CONF
  [ "$USER_SIGNAL" = 0 ] || echo "SlurmctldParameters=preempt_send_user_signal" # preemption sends a job's --signal first
  if [ "$ACCT" = dbd ]; then
    cat <<CONF
MinJobAge=300
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$PORT_DBD
AccountingStoragePass=$SOCKET
AccountingStorageEnforce=associations,limits,qos
JobCompType=jobcomp/none
CONF
  else
    # The stand-in for sacct reads finished jobs from slurmctld's memory: keep them 30 days (0 would mean 2 s).
    cat <<CONF
MinJobAge=2592000
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/filetxt
JobCompLoc=$STATE/log/jobcomp.txt
CONF
  fi
  local gres="" node
  if [ "$GPUS" -gt 0 ]; then
    echo "GresTypes=gpu"
    gres=" Gres=gpu:$GPUS"
  fi
  for ((node = 1; node <= NODES; node++)); do
    echo "NodeName=n$node NodeHostname=$HOST NodeAddr=127.0.0.1 Port=${PORT_NODES[node - 1]} CPUs=$CPUS RealMemory=$MEM$gres State=UNKNOWN"
  done
  cat <<CONF
PartitionName=gpu Nodes=ALL Default=YES PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE DefaultTime=60 State=UP
PartitionName=preempt Nodes=ALL Default=NO PriorityTier=1 PreemptMode=REQUEUE GraceTime=$GRACE MaxTime=INFINITE DefaultTime=60 State=UP
CONF
  printf '%s' "$EXTRA"
}

# Devices that exist make SLURM set CUDA_VISIBLE_DEVICES; null devices will do. Where mknod is refused a plain file is
# counted and scheduled all the same, only the variable is missing.
gres_conf() {
  local gpu
  [ "$GPUS" -gt 0 ] || return 0
  for ((gpu = 0; gpu < GPUS; gpu++)); do
    [ -e "$STATE/dev/nvidia$gpu" ] || mknod "$STATE/dev/nvidia$gpu" c 1 3 2>/dev/null || : >"$STATE/dev/nvidia$gpu"
  done
  echo "Name=gpu File=$STATE/dev/nvidia[0-$((GPUS - 1))]"
}

slurmdbd_conf() {
  cat <<CONF
AuthType=auth/munge
AuthInfo=socket=$SOCKET
DbdHost=$HOST
DbdAddr=127.0.0.1
DbdPort=$PORT_DBD
SlurmUser=$ME
DebugLevel=info
LogFile=$STATE/log/slurmdbd.log
PidFile=$STATE/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$PORT_SQL
StorageUser=slurm
StoragePass=slurm
StorageLoc=slurm_acct_db
CommitDelay=1
${BIND%,*}
CONF
}
