#!/bin/bash

# Parameters
#SBATCH --account=lab
#SBATCH --array=0-2%3
#SBATCH --constraint='h100&nvlink'
#SBATCH --cpus-per-task=8
#SBATCH --error=/scratch/runs/submissions/looprepro-ab12-1-0/logs/%A_%a_0_log.err
#SBATCH --exclude='n1,n[7-9]'
#SBATCH --gres=gpu:h100:2
#SBATCH --job-name=looprepro-ab12-1-0
#SBATCH --mem=64G
#SBATCH --no-requeue
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/scratch/runs/submissions/looprepro-ab12-1-0/logs/%A_%a_0_log.out
#SBATCH --partition=a,b
#SBATCH --qos=high
#SBATCH --reservation=course
#SBATCH --signal=USR2@120
#SBATCH --time=2-00:00:00
#SBATCH --wckey=looprepro

# setup
module load cuda/12.8
export TOKEN='it'"'"'s; $(id) `id` "x"'
export OMP_NUM_THREADS=1
export MKL_NUM_THREADS=1
export OPENBLAS_NUM_THREADS=1
export NUMEXPR_NUM_THREADS=1
export VECLIB_MAXIMUM_THREADS=1
export TORCHINDUCTOR_COMPILE_THREADS=1
export PYTHONPATH=/scratch/runs/sources/0123:/extra
export LOOPREPRO_SUBMISSION=looprepro-ab12-1-0
source /opt/profile.sh

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /scratch/runs/submissions/looprepro-ab12-1-0/logs/%A_%a_%t_log.out --error /scratch/runs/submissions/looprepro-ab12-1-0/logs/%A_%a_%t_log.err --cpus-per-task=8 apptainer exec --nv '/images/my image.sif' '/opt/a python' -u -P -m looprepro.job /scratch/runs/submissions/looprepro-ab12-1-0/manifests/"$SLURM_ARRAY_TASK_ID".json
