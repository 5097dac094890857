"""How a report looks: dark on white, wide, on a phone and on paper."""

from __future__ import annotations

STYLE = """
:root { --ink: #1b2330; --muted: #56606e; --line: #dce1e7; --blue: #1f5fa8; --soft: #f4f7fb; --warn: #8f2d0c }
* { box-sizing: border-box }
html { color-scheme: light; -webkit-text-size-adjust: 100% }
body { margin: 0; background: #fff; color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
main { max-width: 1240px; margin: auto; padding: 24px clamp(14px, 3vw, 32px) 48px }
h1 { font-size: clamp(1.4rem, 4vw, 2rem); line-height: 1.2; margin: 0 0 4px }
h2 { font-size: 1.3rem; margin: 40px 0 12px }
h3 { font-size: 1rem; margin: 0 0 4px }
p { margin: 0 0 8px }
.muted, figcaption, .run { color: var(--muted); font-size: .9rem }
.banner { padding: 10px 14px; border-radius: 8px; margin: 12px 0; border: 1px solid; font-weight: 600 }
.banner.warn { background: #fff3ec; color: var(--warn); border-color: #f0b394 }
.banner.info { background: var(--soft); color: var(--ink); border-color: #bcd0e8; font-weight: 400 }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 12px; margin: 16px 0 }
.tile { border: 1px solid var(--line); border-radius: 8px; padding: 10px 14px }
.tile b { display: block; font-size: 1.2rem; line-height: 1.4 }
.tile span { color: var(--muted); font-size: .85rem }
.promise .banner { margin-top: 0 }
.promise { background: var(--soft); border: 1px solid #bcd0e8; border-radius: 10px; padding: 16px }
dl { display: grid; grid-template-columns: minmax(120px, 190px) 1fr; gap: 8px 20px; margin: 0 }
dt { font-weight: 600 }
dd { margin: 0 }
dd ul { margin: 0; padding-left: 1.1em }
dd p { margin: 0 }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr)); gap: 20px }
figure:last-of-type:nth-of-type(odd) { grid-column: 1 / -1 }
figure { margin: 0; min-width: 0; border: 1px solid var(--line); border-radius: 8px; padding: 14px }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums }
caption { text-align: left; color: var(--muted); font-size: .9rem; padding-bottom: 6px }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--line); vertical-align: top }
th, td { overflow-wrap: break-word }
th { font-weight: 600; color: var(--muted); vertical-align: bottom }
td { white-space: nowrap }
th:first-child, td:first-child, .words { text-align: left; white-space: normal }
td:first-child { overflow-wrap: anywhere; min-width: 15ch }
td.alarm { color: var(--warn); font-weight: 700 }
.promise table { background: #fff; max-width: 560px; margin-top: 6px }
@media screen and (max-width: 640px) {
  dl { grid-template-columns: 1fr; gap: 0 }
  dd { margin-bottom: 12px }
  figure { padding: 10px 6px }
  h3, figcaption { padding: 0 6px }
}
@media screen and (max-width: 860px) {
  .stack thead { display: none }
  .stack tr { display: block; border-bottom: 2px solid var(--line); padding: 6px 0 }
  .stack td { display: flex; justify-content: space-between; gap: 16px; border: 0; padding: 3px 8px }
  .stack tr td { white-space: normal; text-align: right; min-width: 0 }
  .stack td::before { content: attr(data-label); color: var(--muted); text-align: left; flex: 0 1 45% }
  .stack td:first-child { font-weight: 600 }
}
@media print {
  main { max-width: none; padding: 0 }
  body { font-size: 11pt }
  .figures { display: block }
  figure { margin-bottom: 12px }
  figure, tr, .tile, .banner { break-inside: avoid }
  h2, h3 { break-after: avoid }
  .modebar { display: none }
}
"""

DRAW = """
for (const data of document.querySelectorAll("script.drawing")) {
  const drawing = JSON.parse(data.textContent);
  Plotly.newPlot(data.dataset.plot, drawing.data, drawing.layout, { displayModeBar: false, responsive: true });
}
for (const when of ["beforeprint", "afterprint"]) window.addEventListener(when, () => {
  for (const plot of document.querySelectorAll(".js-plotly-plot")) Plotly.Plots.resize(plot);
});
"""
"""Runs last, when every figure has its final width."""
