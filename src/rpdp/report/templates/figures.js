// Runs last, when every figure has its final width. What is folded away is drawn when somebody opens it.
function draw(data) {
  const drawing = JSON.parse(data.textContent);
  Plotly.newPlot(data.dataset.plot, drawing.data, drawing.layout, { displayModeBar: false, responsive: true });
}
for (const data of document.querySelectorAll("script.drawing")) {
  const folded = data.closest("details:not([open])");
  if (folded) folded.addEventListener("toggle", () => draw(data), { once: true });
  else draw(data);
}
for (const when of ["beforeprint", "afterprint"]) window.addEventListener(when, () => {
  for (const plot of document.querySelectorAll(".js-plotly-plot")) Plotly.Plots.resize(plot);
});
