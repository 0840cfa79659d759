"""What the verdicts say about seeds: their spread, and whether one method's are better than another's."""

from __future__ import annotations

import numpy as np
from scipy.stats import permutation_test


def p_value(better: np.ndarray, worse: np.ndarray) -> float:
    """One-sided exact permutation test on the difference of means over seeds."""
    result = permutation_test(
        (better, worse), lambda x, y: x.mean() - y.mean(), alternative="greater", n_resamples=np.inf
    )
    return float(result.pvalue)


def spread(values: np.ndarray, digits: int = 2) -> str:
    """'median [lowest, highest]' over the seeds."""
    low, middle, high = np.min(values), np.median(values), np.max(values)
    return f"{middle:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
