"""Pictures of certificates: what is guaranteed beside what is only promised."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from mnm.analysis.episodes import EpisodeCertificate, lower_return
from mnm.plotting.style import BLACK, BLUE, GREEN, ORANGE, RED, SKY, STYLE
from mnm.tabular.certificate import Certificate
from mnm.tabular.mdp import at

MOMENTS = 60
"""After so many numbers of episodes the bound is drawn."""


def draw_data_certificate(certificate: Certificate, at_least: float | None, listed: int) -> Figure:
    """Left: certificate, promise and bounds as bars from the worst return. Right: the pairs whose doubt costs most."""
    worst = certificate.known.worst_return
    bars = {
        f"certified ({100 * certificate.confidence:g} %)": (certificate.value, BLUE),
        "plug-in promise": (certificate.promise, RED),
    }
    bars |= {
        f"{name},\nin the plug-in model": (value, colour)
        for (name, value), colour in zip(certificate.bounds.items(), (SKY, ORANGE), strict=False)
    }
    costs = certificate.costliest(listed)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 3.0), layout="constrained")
        values, doubt = figure.subplots(1, 2)
        for row, (value, colour) in enumerate(bars.values()):
            values.barh(row, value - worst, left=worst, color=colour, height=0.6)
            page = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # a number covers the line of what was asked
            values.annotate(f" {value:.4g}", (value, row), va="center", fontsize=8, bbox=page)
        values.set_yticks(range(len(bars)), list(bars))
        values.axvline(worst, color=BLACK, linewidth=1, label="worst return")
        if at_least is not None:
            values.axvline(at_least, color=BLACK, linewidth=1, linestyle="--", label="asked for")
        values.margins(x=0.15)
        values.set(xlabel="return, discounted", title="guaranteed and promised")
        values.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=2)
        pairs = [f"{at(cost.state, cost.action)}\n({cost.samples:,} samples)" for cost in costs]
        doubt.barh(range(len(costs)), [cost.cost for cost in costs], color=BLUE, height=0.6)
        doubt.set_yticks(range(len(costs)), pairs)
        doubt.set(xlabel="costs the certificate", title="what doubt costs most")
        for panel in (values, doubt):
            panel.invert_yaxis()  # the first on top
            panel.grid(visible=False, axis="y")
    return figure


def draw_episode_certificate(certificate: EpisodeCertificate, title: str) -> Figure:
    """Every episode's return, the lower bound after so many of them, and what the model promises."""
    returns, numbers = np.asarray(certificate.returns), np.arange(1, len(certificate.returns) + 1)
    moments = np.unique(np.linspace(1, len(returns), MOMENTS).round().astype(int))
    shared = certificate.return_range, certificate.confidence, certificate.planned
    bounds = [lower_return(certificate.returns[:moment], *shared) for moment in moments]
    lines = {
        "mean": (float(returns.mean()), GREEN, "-"),
        "return in the model": (certificate.promises.get("model_return"), RED, "-"),
        "asked for": (certificate.at_least, BLACK, "--"),
    }
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        axes = figure.subplots()
        axes.plot(numbers, returns, "o", color=GREEN, alpha=0.4, markersize=4, label="an episode's return")
        for label, (value, colour, dashes) in lines.items():
            if value is not None and np.isfinite(value):
                axes.axhline(value, color=colour, linestyle=dashes, linewidth=1.2, label=label)
        label = f"certified ({100 * certificate.confidence:g} %): {certificate.lower:.4g}"
        axes.plot(moments, bounds, color=BLUE, label=label)
        axes.set(xlabel="episodes", ylabel="return, undiscounted", title=title)
        figure.legend(loc="outside lower center", ncols=3)
    return figure
