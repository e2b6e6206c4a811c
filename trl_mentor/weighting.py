"""How TRL's loss comes to weigh single tokens of a row: by advantages of shape (B, T). Pure functions of tensors.

B rows have T completion tokens each; p_t = pi_theta(o_t | q, o_<t) is the policy's probability of a token under the
prompt that the row is scored under, at the temperature of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from trl_mentor.records import Weighting

WEIGHTING = "mentor/weighting"
"""Key of the batch for what `encoded` returns; a batch in which no row is weighed does not have it."""

_CODES = list(Weighting)


def encoded(weightings: Sequence[Weighting], device: torch.device) -> torch.Tensor:
    """One number per row, shape (B,), for TRL to shuffle and split along with the rows."""
    return torch.tensor([_CODES.index(weighting) for weighting in weightings], device=device)


def weighed(
    batch: Mapping[str, Any], logps: torch.Tensor, *, gamma: float, exponent: float, clip: tuple[float, float]
) -> dict[str, torch.Tensor]:
    """What takes the place of `advantages` and `old_per_token_logps` in a batch that has `WEIGHTING`, each (B, T).

    `logps` are the log p_t that the loss has just computed, without gradient. TRL's loss of a token has the gradient
    -A_t rho_t grad log p_t where nothing is clipped, and with the numbers given here
    * in a shaped row rho_t = 1 at each inner step, so that nothing is clipped, and A_t = A f'(p_t) p_t of `slope`;
    * in a row weighed by affinity rho_t is TRL's own and A_t = A Affinity^exponent;
    * in any other row both are TRL's own.
    """
    old = batch.get("old_per_token_logps")
    old = logps if old is None else old
    shaped, drifting = (_rows(batch, kind) for kind in (Weighting.SHAPED, Weighting.AFFINITY))
    factor = affinity(logps - old, batch["completion_mask"], clip=clip) ** exponent
    weights = torch.where(shaped, slope(logps, gamma), torch.where(drifting, factor, 1.0))
    return {
        "advantages": batch["advantages"].unsqueeze(1) * weights,
        "old_per_token_logps": torch.where(shaped, logps, old),
    }


def slope(logps: torch.Tensor, gamma: float) -> torch.Tensor:
    """d f(p) / d log p = gamma p / (p + gamma)^2 of LUFFY's shaping f(p) = p / (p + gamma), for log-probabilities.

    LUFFY (arXiv 2504.14945) maximises the sum of A f(p_t), with the behaviour's probability set to 1 and without
    clipping. The slope is at most 1/4, at p = gamma, and gamma / (1 + gamma)^2 at p = 1: 0.08 for gamma = 0.1.
    """
    p = logps.exp()
    return gamma * p / (p + gamma) ** 2


def affinity(log_ratios: torch.Tensor, mask: torch.Tensor, *, clip: tuple[float, float]) -> torch.Tensor:
    """HINT's Affinity = EUR exp(-UC / tau) of each row, shape (B, 1), from its log rho_t and mask, both (B, T).

    HINT is arXiv 2510.09388. EUR is the share of the row's tokens whose ratio lies in [1 - low, 1 + high], TRL's
    `epsilon` and `epsilon_high`; UC the standard deviation of log rho_t among those; tau = ln(1 + high) / 2. HINT
    takes them over a group, each token with the weight |A| of its row. TRL shuffles the rows of a group over micro-
    batches, so that it is a row here, in which |A| is the same everywhere and cancels. 1 for a policy that has not
    moved, 0 where no token is left.
    """
    low, high = clip
    ratios = log_ratios.exp()
    inside = mask.bool() & (ratios >= 1 - low) & (ratios <= 1 + high)
    count = inside.sum(dim=1, keepdim=True)
    share = count / mask.sum(dim=1, keepdim=True).clamp(min=1)
    mean = log_ratios.where(inside, 0.0).sum(dim=1, keepdim=True) / count.clamp(min=1)
    variance = ((log_ratios - mean) ** 2).where(inside, 0.0).sum(dim=1, keepdim=True) / count.clamp(min=1)
    return share * torch.exp(-2 * variance.sqrt() / math.log1p(high))


def _rows(batch: Mapping[str, Any], weighting: Weighting) -> torch.Tensor:
    """Which rows are weighed in this way, shape (B, 1)."""
    found: torch.Tensor = batch[WEIGHTING].unsqueeze(1) == _CODES.index(weighting)
    return found
