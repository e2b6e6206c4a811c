"""How long a sequence the vLLM engine behind a trainer takes: an engine that is sent more ends the run."""

from __future__ import annotations

import logging
from typing import Any

from trl import GRPOTrainer

logger = logging.getLogger(__name__)


def engine_limit(trainer: GRPOTrainer) -> int | None:
    """Tokens of prompt and completion together, or None without vLLM and where the limit is not known.

    A server has a limit of its own, which no setting of a trainer states. Only the main process talks to it, so that
    the others know no more than `vllm_max_model_length`.
    """
    if not trainer.use_vllm:
        return None
    if trainer.vllm_mode == "colocate":
        return int(trainer.vllm_generation.llm.llm_engine.model_config.max_model_len)
    limits = [trainer.args.vllm_max_model_length]
    if trainer.accelerator.is_main_process:
        limits.append(server_limit(trainer.vllm_generation.vllm_client))
    known = min((limit for limit in limits if limit), default=None)
    if known is None and trainer.accelerator.is_main_process:
        logger.warning(
            "trl-mentor: the vLLM server does not say how long a sequence it takes. Set vllm_max_model_length to its "
            "--max_model_len: hints are then shortened to fit; else a hinted prompt that is too long ends the run."
        )
    return known


def server_limit(client: Any) -> int | None:
    """What a server says about the model it serves; None from one that does not say (TRL before 1.16)."""
    try:
        response = client.session.get(f"{client.base_url}/v1/models", timeout=10)
        limit = response.json()["data"][0]["max_model_len"] if response.status_code == 200 else None
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return limit if isinstance(limit, int) else None
