// Runs last, when every figure has its final width.
for (const data of document.querySelectorAll("script.drawing")) {
  const drawing = JSON.parse(data.textContent);
  Plotly.newPlot(data.dataset.plot, drawing.data, drawing.layout, { displayModeBar: false, responsive: true });
}
for (const when of ["beforeprint", "afterprint"]) window.addEventListener(when, () => {
  for (const plot of document.querySelectorAll(".js-plotly-plot")) Plotly.Plots.resize(plot);
});
