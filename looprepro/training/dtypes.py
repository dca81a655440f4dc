"""Number formats of training."""

from __future__ import annotations

import torch

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}
"""Type of the parameters for each arithmetic; bfloat16 is autocast over float32 parameters."""
