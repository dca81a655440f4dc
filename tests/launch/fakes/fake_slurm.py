"""A pretended SLURM for tests: sbatch, squeue, sacct, scancel and scontrol over a folder, with scripted behaviour.

The folder (FAKE_SLURM) holds ``cluster.json`` (jobs and limits), ``behaviour/<command>.json`` (a list; each call takes the
first entry, one with ``"forever": true`` stays) and ``calls.jsonl`` (what was called, with which SLURM variables). A
behaviour has any of

    sleep   seconds before anything happens       act     false: do nothing
    hang    seconds after it, before answering    out, error, code   answer this instead

It knows the options that looprepro uses and refuses others, so a new one is noticed.
"""

import fcntl
import json
import os
import re
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["FAKE_SLURM"])
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "OUT_OF_MEMORY")


def change(update):
    """Read ``cluster.json``, apply ``update``, write it; one process at a time. Returns what ``update`` returns."""
    with open(FOLDER / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = FOLDER / "cluster.json"
        cluster = json.loads(path.read_text()) if path.exists() else {"next": 1, "max_array_size": 1001, "jobs": []}
        result = update(cluster)
        path.with_suffix(".new").write_text(json.dumps(cluster))
        path.with_suffix(".new").rename(path)
    return result


def behaviour(command):
    """The scripted behaviour of this call."""
    path = FOLDER / "behaviour" / f"{command}.json"

    def take(_cluster):
        entries = json.loads(path.read_text()) if path.exists() else []
        if not entries:
            return {}
        path.write_text(json.dumps(entries if entries[0].get("forever") else entries[1:]))
        return entries[0]

    return change(take)


def options(arguments, known, flags=()):
    """(values by option, rest); SystemExit for an option that is not in ``known``."""
    values, rest = {}, []
    for argument in arguments:
        name, _, value = argument.partition("=")
        if not argument.startswith("-"):
            rest.append(argument)
        elif name in flags or name in known:
            values[name] = value
        else:
            sys.exit(f"error: unrecognized option '{argument}'")
    return values, rest


def sbatch(arguments):
    """Add a job as the script's #SBATCH lines say; print its id."""
    _, (script,) = options(arguments, (), ("--parsable",))
    text = Path(script).read_text()
    said = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", text, re.MULTILINE))
    first, last, limit = 0, -1, None
    if "array" in said:
        first, last, limit = (int(one or 0) for one in re.fullmatch(r"(\d+)-?(\d*)(?:%(\d+))?", said["array"]).groups())
        last = max(first, last)

    def add(cluster):
        if last >= cluster["max_array_size"]:
            return None
        job = cluster["next"]
        cluster["next"] += 1
        indices = [str(index) for index in range(first, last + 1)] or [""]
        tasks = {index: {"state": "PENDING", "code": "0:0"} for index in indices}
        name = said.get("job-name", "sbatch").strip("\"'")
        cluster["jobs"].append({"id": job, "name": name, "limit": limit, "script": text, "tasks": tasks})
        return job

    job = change(add)
    if job is None:
        sys.exit("sbatch: error: Batch job submission failed: Invalid job array specification")
    return f"{job}\n"


def rows(job, *, forgotten):
    """(id, state, exit code) lines of a job, its waiting indices as one."""
    waiting = [int(index) for index, task in job["tasks"].items() if index and task["state"] == "PENDING"]
    if waiting:
        spans, start = [], waiting[0]
        for this, following in zip(waiting, [*waiting[1:], None], strict=True):
            if following != this + 1:
                spans.append(f"{start}-{this}" if this > start else f"{this}")
                start = following
        limit = f"%{job['limit']}" if job["limit"] else ""
        yield f"{job['id']}_[{','.join(spans)}{limit}]", "PENDING", "0:0"
    for index, task in job["tasks"].items():
        if (index and task["state"] == "PENDING") or task.get("erased") or (task.get("forgotten") and not forgotten):
            continue
        yield f"{job['id']}_{index}" if index else f"{job['id']}", task["state"], task["code"]


def squeue(arguments):
    """Jobs that the controller still remembers, in the fields asked for."""
    values, _ = options(arguments, ("--user", "--Format", "--name", "--states"), ("--noheader",))
    fields = [field.removesuffix(":|") for field in values["--Format"].split(":|,")]
    lines = []
    for job in change(lambda cluster: cluster["jobs"]):
        if values.get("--name", job["name"]) != job["name"]:
            continue
        for ids, state, code in rows(job, forgotten=False):
            exit_code, signal = code.split(":")
            shown = {
                "JobArrayID": ids,
                "State": state,
                "exit_code": str(int(exit_code) * 256 + int(signal)),
                "RestartCnt": "0",
                "Reason": "None",
                "Name": job["name"],
            }
            lines.append("".join(shown[field] + "|" for field in fields))
    return "".join(line + "\n" for line in lines)


def sacct(arguments):
    """All jobs ever, in the fields asked for."""
    flags = ("--noheader", "--parsable2", "--allocations")
    values, _ = options(arguments, ("--user", "--format", "--name", "--starttime"), flags)
    lines = []
    for job in change(lambda cluster: cluster["jobs"]):
        if values.get("--name", job["name"]) != job["name"]:
            continue
        for ids, state, code in rows(job, forgotten=True):
            shown = {"JobID": ids, "State": state, "ExitCode": code, "JobName": job["name"]}
            lines.append("|".join(shown[field] for field in values["--format"].split(",")))
    return "".join(line + "\n" for line in lines)


def scancel(arguments):
    """Cancel; a waiting index of an array vanishes from every list, as in SLURM."""
    _, targets = options(arguments, ())

    def cancel(cluster):
        unknown = []
        for target in targets:
            number, _, index = target.partition("_")
            found = [job for job in cluster["jobs"] if job["id"] == int(number)]
            if not found:
                unknown.append(target)
            for job in found:
                for key, task in job["tasks"].items():
                    if (index and key != index) or task["state"] in ENDED:
                        continue
                    task["erased"] = bool(key) and task["state"] == "PENDING"
                    task["state"] = "CANCELLED"
        return unknown

    unknown = change(cancel)
    if unknown:
        sys.exit("\n".join(f"scancel: error: Kill job error on job id {one}: Invalid job id specified" for one in unknown))
    return ""


def scontrol(arguments):
    """``scontrol requeue ID``."""
    if len(arguments) != 2 or arguments[0] != "requeue":
        sys.exit(f"scontrol: error: not known to the fake: {arguments}")
    number, _, index = arguments[1].partition("_")

    def requeue(cluster):
        for job in cluster["jobs"]:
            for key, task in job["tasks"].items():
                if job["id"] == int(number) and (not index or key == index):
                    task["state"] = "PENDING"

    change(requeue)
    return ""


def main():
    """Note the call, then behave as scripted."""
    command, arguments = sys.argv[1], sys.argv[2:]
    seen = {name: value for name, value in os.environ.items() if re.match(r"(SLURM|SBATCH|SALLOC|SRUN|SQUEUE|SACCT)_", name)}
    with open(FOLDER / "calls.jsonl", "a") as calls:
        calls.write(json.dumps({"command": command, "arguments": arguments, "environment": seen}) + "\n")
    script = behaviour(command)
    if script.get("error"):
        print(script["error"], file=sys.stderr, flush=True)
    time.sleep(script.get("sleep", 0))
    answer = ""
    if script.get("act", "code" not in script):
        answer = globals()[command](arguments)
    time.sleep(script.get("hang", 0))
    print(script.get("out", answer), end="")
    return script.get("code", 0)


if __name__ == "__main__":
    sys.exit(main())
