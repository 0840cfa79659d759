"use strict";
(() => {
  const config = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
  const drawn = new Set();
  const touched = matchMedia("(pointer: coarse)");

  // Colours in the figures are names of CSS variables: whatever the page's are now.
  function draw(plot) {
    const style = getComputedStyle(document.documentElement);
    const coloured = (key, value) =>
      typeof value === "string" && value.startsWith("--") && /color$/.test(key) ? style.getPropertyValue(value).trim() : value;
    const figure = JSON.parse(plot.nextElementSibling.textContent, coloured);
    if (touched.matches) figure.layout.dragmode = false; // a finger scrolls the page
    drawn.add(plot);
    return Plotly.react(plot, figure.data, figure.layout, { ...config, displayModeBar: touched.matches ? false : "hover" });
  }

  // Hundreds of plots would take long: each is drawn when it is about to be seen.
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries.filter((entry) => entry.isIntersecting)) {
      observer.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "600px" });
  const plots = [...document.querySelectorAll(".plot")];
  plots.forEach((plot) => observer.observe(plot));

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawn.forEach(draw));
  addEventListener("beforeprint", () => plots.filter((plot) => plot.offsetParent && !drawn.has(plot)).forEach(draw));
})();
