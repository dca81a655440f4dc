#!/bin/bash

# Parameters
#SBATCH --array=0-998%64
#SBATCH --cpus-per-task=8
#SBATCH --error=/scratch/runs/submissions/looprepro-ab12-1-0/logs/%A_%a_0_log.err
#SBATCH --gres=gpu:h100:1
#SBATCH --job-name=looprepro-ab12-1-0
#SBATCH --mem=64G
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --open-mode=append
#SBATCH --output=/scratch/runs/submissions/looprepro-ab12-1-0/logs/%A_%a_0_log.out
#SBATCH --partition=gpu
#SBATCH --requeue
#SBATCH --signal=USR2@180
#SBATCH --time=12:00:00
#SBATCH --wckey=looprepro

# setup
export OMP_NUM_THREADS=1
export MKL_NUM_THREADS=1
export OPENBLAS_NUM_THREADS=1
export NUMEXPR_NUM_THREADS=1
export VECLIB_MAXIMUM_THREADS=1
export TORCHINDUCTOR_COMPILE_THREADS=1
export PYTHONPATH=/scratch/runs/sources/0123
export LOOPREPRO_SUBMISSION=looprepro-ab12-1-0

# command
export SUBMITIT_EXECUTOR=slurm
srun --unbuffered --output /scratch/runs/submissions/looprepro-ab12-1-0/logs/%A_%a_%t_log.out --error /scratch/runs/submissions/looprepro-ab12-1-0/logs/%A_%a_%t_log.err --cpus-per-task=8 /env/bin/python -u -P -m looprepro.job /scratch/runs/submissions/looprepro-ab12-1-0/manifests/"$SLURM_ARRAY_TASK_ID".json
