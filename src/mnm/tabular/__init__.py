"""Finite MDPs: exact solutions, MnM's joint iteration, and the ladder of bounds.

The sampled learners (`q_learning`, `learned`) need JAX and are imported from their own modules.
"""

from mnm.tabular.bounds import LADDER, ModelSupportWarning, ladder, log_expected_return, tight_model
from mnm.tabular.certificate import Certificate, certify
from mnm.tabular.evaluation import ConvergenceError, evaluate_policy, occupancy
from mnm.tabular.grids import Grid, MapError, open_grid, parse_map, random_grid
from mnm.tabular.gym_tables import from_gym
from mnm.tabular.mdp import Dynamics, MDPError, TabularMDP, deterministic_policy, uniform_policy
from mnm.tabular.mnm import JointStep, joint_iteration, joint_iteration_paper, joint_iteration_tight
from mnm.tabular.random_mdps import random_mdp, random_model, random_policy
from mnm.tabular.solvers import Solution, optimal_return, policy_iteration, solve, value_iteration
from mnm.tabular.transitions import TransitionData, read_transitions, sample_counts, sample_transitions
from mnm.tabular.vmbpo import joint_iteration_vmbpo

__all__ = [
    "LADDER",
    "Certificate",
    "ConvergenceError",
    "Dynamics",
    "Grid",
    "JointStep",
    "MDPError",
    "MapError",
    "ModelSupportWarning",
    "Solution",
    "TabularMDP",
    "TransitionData",
    "certify",
    "deterministic_policy",
    "evaluate_policy",
    "from_gym",
    "joint_iteration",
    "joint_iteration_paper",
    "joint_iteration_tight",
    "joint_iteration_vmbpo",
    "ladder",
    "log_expected_return",
    "occupancy",
    "open_grid",
    "optimal_return",
    "parse_map",
    "policy_iteration",
    "random_grid",
    "random_mdp",
    "random_model",
    "random_policy",
    "read_transitions",
    "sample_counts",
    "sample_transitions",
    "solve",
    "tight_model",
    "uniform_policy",
    "value_iteration",
]
