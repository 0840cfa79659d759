"""One file per algorithm: its settings, its update, its presets; `ALGORITHMS` names them all."""

from mnm.agents import mbpo, mnm, mnm_approx, mnm_tight, sac, value_weighted, vaml, vmbpo
from mnm.agents.algorithm import Algorithm

MODULES = (sac, mbpo, mnm, mnm_approx, mnm_tight, vmbpo, vaml, value_weighted)
ALGORITHMS: dict[str, Algorithm] = {module.ALGORITHM.name: module.ALGORITHM for module in MODULES}
