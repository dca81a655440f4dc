"""LAMBADA by lm-eval (extra: lm): its ``lambada_openai`` task, its splitting, our model one item at a time.

The task is lm-eval's own file; only its data can be replaced, by the local .jsonl that our scorer reads, so that both score
the same items. Everything here is lm-eval's but the forward pass; a test holds our own scorer against it, item by item.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import yaml

from looprepro.config.corpus import EOS
from looprepro.files.errors import ConfigError, StoreError
from looprepro.training.scoring import Scored

if TYPE_CHECKING:
    from looprepro.training.language_evaluation import Measured

TASK = "lambada_openai"
HUB = "hub"
"""In place of a file: the data set on the hub that the task's file names."""


def harness_scores(measured: Measured, data: Path | str, T: int, draw: int = 0, limit: int | None = None) -> Scored:
    """lm-eval's scores of ``lambada_openai`` after ``T`` steps, item by item. ``data``: a .jsonl file, or :data:`HUB`.

    :class:`ConfigError` without lm-eval, :class:`StoreError` where the hub is asked and does not answer.
    """
    try:
        from lm_eval import evaluator
        from lm_eval.api.task import ConfigurableTask
    except ImportError as error:
        raise ConfigError(
            f"lm-eval cannot be imported: {error}", "Install the extra: pip install looprepro[lm]; or use harness own"
        ) from error
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as cache:
        settings = task_settings()
        if data != HUB:
            files = {"data_files": {"test": str(Path(data).resolve())}, "cache_dir": cache}
            settings |= {"dataset_path": "json", "dataset_name": None, "dataset_kwargs": files}
        try:
            task = ConfigurableTask(config=settings)
        except OSError as error:
            raise StoreError(
                f"lm-eval cannot load its task {TASK}: {error}",
                "Run looprepro data prepare lambada where there is network, or name a .jsonl file with evaluation.lambada",
            ) from error
        done = evaluator.evaluate(_adapter(measured, T, draw), {TASK: task}, limit=limit, bootstrap_iters=0, log_samples=True)
    samples = sorted(done["samples"][TASK], key=lambda sample: sample["doc_id"])
    answers = [sample["filtered_resps"][0] for sample in samples]
    return Scored(np.array([-float(answer[0]) for answer in answers]), np.array([bool(answer[1]) for answer in answers]))


def task_settings() -> dict[str, Any]:
    """What lm-eval's file of the task says."""
    import lm_eval

    path = Path(lm_eval.__file__).parent / "tasks" / "lambada" / f"{TASK}.yaml"
    settings: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return settings


def _adapter(measured: Measured, T: int, draw: int) -> Any:
    """A model as lm-eval knows it. Built in a function, since its base class is there with the extra only."""
    from lm_eval.api.model import TemplateLM

    class Adapter(TemplateLM):
        """Encoding, left cut and log-likelihoods after ``T`` steps."""

        @property
        def eot_token_id(self) -> int:
            return EOS

        def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
            return measured.codec.encode(string)

        @torch.no_grad()
        def _loglikelihood_tokens(
            self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
        ) -> list[tuple[float, bool]]:
            """One item at a time, without padding; x_0 of the item's number."""
            answers = []
            state = measured.state(draw)
            for number, (_pair, context, target) in enumerate(requests):
                tokens = torch.tensor((context + target)[-(measured.task.max_time + 1) :], device=measured.device)
                inputs = tokens[None, :-1]
                ((_T, logits),) = measured.readouts(inputs, state(torch.tensor([number]), inputs.shape[1]), [T])
                logs = logits[0, -len(target) :].double().log_softmax(dim=-1)
                wanted = tokens[-len(target) :]
                nats = -logs.gather(1, wanted[:, None]).sum()
                answers.append((-float(nats), bool((logs.argmax(dim=-1) == wanted).all())))
            return answers

        def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> list[float]:
            raise NotImplementedError("lambada_openai asks for log-likelihoods of continuations only")

        def generate_until(self, requests: Any, disable_tqdm: bool = False) -> list[str]:
            raise NotImplementedError("lambada_openai asks for log-likelihoods of continuations only")

    return Adapter()
