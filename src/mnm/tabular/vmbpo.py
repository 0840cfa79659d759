"""VMBPO on finite MDPs: MnM's joint iteration without the logarithm of the reward.

VMBPO maximises E_q[ sum_t discount^t ( r + (1/temperature) log p/q ) ] over the policy and the model. For given V
the best model is q ~ p exp( temperature discount V ), and the joint Bellman operator

    (T V)(s) = max_a [ r(s,a) + (1/temperature) log E_p exp( temperature discount V(s') ) ]

is risk seeking: the maximum is an upper bound on the best return, and its policy prefers variance. The paper uses
temperature 1; as the temperature goes to 0 the plain Bellman operator comes back.
"""

from __future__ import annotations

from mnm.tabular.bounds import check_temperature
from mnm.tabular.mdp import TabularMDP
from mnm.tabular.mnm import JointStep, maximise_jointly


def joint_iteration_vmbpo(mdp: TabularMDP, temperature: float = 1.0, tolerance: float = 1e-10) -> list[JointStep]:
    """VMBPO's policy and model by policy iteration over (action, model)."""
    check_temperature(temperature)
    return maximise_jointly(mdp, mdp.expected_rewards, 1.0 / temperature, tolerance)
