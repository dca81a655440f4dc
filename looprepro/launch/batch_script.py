"""The text of a batch script, written by submitit: a pure function of a profile and paths, which works off-cluster.

Only submitit's script writer is used. Its job objects name their files by job id, so a job whose sbatch answer was lost
could not be adopted; here everything that a job needs lies in a folder named by us before sbatch is called.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from submitit.slurm.slurm import _make_sbatch_string

from looprepro.files.errors import ConfigError
from looprepro.launch.base import thread_environment
from looprepro.launch.profile import Profile


def check_path(path: Path) -> None:
    """:class:`ConfigError` where SLURM could not take ``path`` as it is."""
    if any(sign in str(path) for sign in "%\\\"'`") or not str(path).isprintable():
        raise ConfigError(
            f"SLURM cannot write logs into {str(path)!r}: it holds a percent sign, a quote, a backslash or a line break",
            "Choose another folder with --runs",
        )


def batch_script(profile: Profile, *, name: str, folder: Path, source: Path, jobs: int, threads: int) -> str:
    """The script of an array of ``jobs`` jobs called ``name``, whose manifests lie in ``folder``/manifests.

    ``source``: the code to run. ``threads``: CPU threads of each cell, fixed before Python starts.
    """
    check_path(folder)
    variables = dict(profile.environment)
    paths = [str(source), *filter(None, [variables.pop("PYTHONPATH", "")])]
    variables |= thread_environment(threads) | {"PYTHONPATH": ":".join(paths), "LOOPREPRO_SUBMISSION": name}
    setup = [
        *(f"module load {shlex.quote(module)}" for module in profile.modules),
        *(f"export {variable}={shlex.quote(value)}" for variable, value in variables.items()),
        *profile.setup,
    ]
    # -P: python -m would put the folder that sbatch was called in, a checkout perhaps, before the submitted source.
    words = [*profile.container, profile.python or sys.executable, "-u", "-P", "-m", "looprepro.job"]
    manifest = f'{shlex.quote(f"{folder}/manifests/")}"$SLURM_ARRAY_TASK_ID".json'
    optional = {
        "time": profile.time,
        "account": profile.account,
        "qos": profile.qos,
        "constraint": profile.constraint,
        "exclude": profile.exclude,
        "reservation": profile.reservation,
        "gres": profile.gres,
        ("requeue" if profile.requeue else "no-requeue"): True,
    }
    return str(
        _make_sbatch_string(
            f"{shlex.join(words)} {manifest}",
            folder / "logs",
            job_name=name,
            partition=profile.partition,
            nodes=profile.nodes,
            ntasks_per_node=profile.tasks,
            cpus_per_task=profile.cpus,
            mem=profile.memory,
            signal_delay_s=profile.signal_lead,
            setup=setup,
            array_parallelism=profile.array_parallelism,
            map_count=jobs,
            wckey="looprepro",
            # Since SLURM 22.05 srun does not take over the job's --cpus-per-task.
            srun_args=[f"--cpus-per-task={profile.cpus}"],
            additional_parameters={key: value for key, value in optional.items() if value is not None},
        )
    )
