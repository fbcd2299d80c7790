// Draws the figures of a report: which of its charts a figure's select elements ask for, with a legend of buttons.
"use strict";

// What Python's base64.b85encode made of so many bytes, with a comma for <.
function bytesOf(element) {
  const DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";
  const digit = new Map([...DIGITS].map((character, value) => [character, value]));
  const text = element.textContent;
  const bytes = new DataView(new ArrayBuffer(text.length / 5 * 4));
  for (let i = 0; i < text.length; i += 5) {
    let word = 0;
    for (let k = i; k < i + 5; ++k) word = word * 85 + digit.get(text[k]);
    bytes.setUint32(i / 5 * 4, word);
  }
  return bytes.buffer.slice(0, Number(element.dataset.bytes));
}

(async () => {
  const library = document.createElement("script");
  const unpacked = new Blob([bytesOf(document.getElementById("plotly"))]).stream().pipeThrough(new DecompressionStream("gzip"));
  library.textContent = await new Response(unpacked).text();
  document.head.append(library);
  const narrow = window.matchMedia("(max-width: 640px)");
  const PRINTED_WIDTH = 680; // px on A4 with the style sheet's margins
  const axis = {
    showline: true, linecolor: "#1a1a1a", ticks: "outside", tickcolor: "#1a1a1a", gridcolor: "#e6e6e6", zeroline: false,
    automargin: true, exponentformat: "power", title: { standoff: 10 },
  };
  const base = {
    font: { family: 'system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif', size: 13, color: "#1a1a1a" },
    paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff", showlegend: false, autosize: true, height: 420,
    margin: { l: 60, r: 20, t: 28, b: 50 }, hoverlabel: { font: { size: 13 }, align: "left", namelength: -1 },
    dragmode: false,
  };
  // Charts are made for white paper. On a dark screen what is ink there becomes light, and what is paper dark.
  const dark = window.matchMedia("screen and (prefers-color-scheme: dark)");
  const DARK = { "#1a1a1a": "#e4e6e7", "#000000": "#e4e6e7", "#ffffff": "#16191b", "#e6e6e6": "#33383b", "#ededed": "#4a4f52",
    "rgba(255,255,255,0.85)": "rgba(22,25,27,0.85)", "#0072b2": "#3d9bd8", "#8a8a8a": "#a7adb1" };
  const recoloured = (value) => {
    if (typeof value === "string") return DARK[value.toLowerCase()] ?? value;
    if (Array.isArray(value)) return value.map(recoloured);
    if (value === null || typeof value !== "object") return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, recoloured(each)]));
  };
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const merged = (one, other) => {
    const out = { ...one };
    for (const [key, value] of Object.entries(other)) out[key] = isObject(value) ? merged(isObject(out[key]) ? out[key] : {}, value) : value;
    return out;
  };
  // Labels of a log axis's ticks as far as they fit: some 8 pixels a letter.
  const fitting = (axis, width) => {
    const at = axis.tickvals.map(Math.log10);
    const pixels = width / Math.max(at[at.length - 1] - at[0], 1e-9);
    let end = -Infinity;
    return axis.ticktext.map((label, i) => {
      const half = 4 * label.length + 3;
      const middle = (at[i] - at[0]) * pixels;
      if (middle - half < end) return "";
      end = middle + half;
      return label;
    });
  };
  const layoutOf = (chart, width) => {
    const layout = merged(base, chart.layout);
    for (const key of ["xaxis", "yaxis"]) {
      layout[key] = merged(axis, layout[key] ?? {});
      const title = layout[key].title.text;
      if (title && title.length * 8 > width - 100) layout[key].title = { ...layout[key].title, text: title.replace(" (", "<br>(") };
    }
    if (layout.xaxis.type === "log" && layout.xaxis.ticktext) layout.xaxis.ticktext = fitting(layout.xaxis, 0.9 * (width - 90));
    return layout;
  };

  // What a series looks like, as a small picture.
  const SHAPES = {
    circle: '<circle cx="14" cy="7" r="4"/>', square: '<rect x="10" y="3" width="8" height="8"/>',
    diamond: '<path d="M14 2l5 5-5 5-5-5z"/>', "triangle-up": '<path d="M14 2l5 9h-10z"/>',
    "triangle-down": '<path d="M14 12l5-9h-10z"/>', x: '<path d="M10 3l8 8m0-8l-8 8" stroke-width="3"/>',
    cross: '<path d="M14 2v10m-5-5h10" stroke-width="3"/>', star: '<path d="M14 1l2 4 5 .5-4 3 1 5-4-2.5-4 2.5 1-5-4-3 5-.5z"/>',
    "line-ew": "", "line-ns": "",
  };
  const DASH = { dash: "7 4", dot: "2 3", dashdot: "7 3 2 3", longdash: "11 4", solid: "" };
  const picture = (trace) => {
    const of = (value) => (Array.isArray(value) ? value[0] : value);
    if (trace.type === "bar" || trace.stackgroup || trace.fill) {
      const color = of(trace.marker?.color) ?? trace.fillcolor ?? "#888";
      const pattern = trace.marker?.pattern?.shape ?? trace.fillpattern?.shape;
      const lines = { "/": "M0 14l14-14m0 14l14-14", "\\": "M0 0l14 14m0-14l14 14", x: "M0 14l14-14l14 14M0 0l14 14l14-14",
        "-": "M0 5h28m-28 5h28", "|": "M6 0v14m8-14v14m8-14v14", "+": "M0 7h28M9 0v14m10-14v14", ".": "M6 7h2m5 0h2m5 0h2" }[pattern];
      return `<svg width="28" height="14" aria-hidden="true"><rect width="28" height="14" fill="${color}"/>` +
        (lines ? `<path d="${lines}" stroke="#fff" stroke-width="1.5" fill="none"/>` : "") + "</svg>";
    }
    const color = trace.line?.color ?? of(trace.marker?.color) ?? "#888";
    const line = (trace.mode ?? "lines").includes("lines") || (trace.marker?.symbol ?? "") === "line-ew";
    const shape = (trace.mode ?? "").includes("markers") ? SHAPES[trace.marker?.symbol ?? "circle"] ?? "" : "";
    return '<svg width="28" height="14" aria-hidden="true">' +
      (line ? `<path d="M0 7h28" stroke="${color}" stroke-width="2" stroke-dasharray="${DASH[trace.line?.dash ?? "solid"] ?? ""}"/>` : "") +
      `<g fill="${color}" stroke="${color}">${shape}</g></svg>`;
  };

  const figures = [];
  for (const element of document.querySelectorAll("figure.chart")) {
    const spec = JSON.parse(element.querySelector('script[type="application/json"]').textContent);
    const plot = element.querySelector(".plot");
    const legend = element.querySelector(".legend");
    const missing = element.querySelector(".missing");
    const selects = [...element.querySelectorAll("select")];
    const shown = new Map(); // by name of the series: whether the reader wants to see it
    let printing = false;
    const key = (change) => selects.map((select, i) => (change && i === change[0] ? change[1] : select.value)).join("|");
    const chart = () => (narrow.matches && !printing && spec.narrow[key()]) || spec.views[key()];

    const visible = (trace) => shown.get(trace.name) ?? (trace.visible ?? true) === true;
    const draw = () => {
      // Which options lead somewhere, the other choices being what they are.
      selects.forEach((select, i) => {
        if (i === 0) return;
        for (const option of select.options) option.disabled = spec.views[key([i, option.value])] === undefined;
        if (select.selectedOptions[0].disabled) {
          const first = [...select.options].find((option) => !option.disabled);
          if (first) select.value = first.value;
        }
      });
      const isDark = dark.matches && !printing;
      const now = isDark && chart() !== undefined ? recoloured(chart()) : chart();
      missing.hidden = now !== undefined;
      plot.hidden = legend.hidden = now === undefined;
      if (now === undefined) return;
      const data = now.data.map((trace) => ({ ...trace, visible: visible(trace) ? true : "legendonly" }));
      const light = layoutOf(now, printing ? PRINTED_WIDTH : plot.clientWidth);
      const layout = isDark ? recoloured(light) : light;
      if (printing) Object.assign(layout, { width: PRINTED_WIDTH, height: Math.min(layout.height, Math.max(230, 0.65 * layout.height)), autosize: false });
      Plotly.react(plot, data, layout, {
        responsive: true, displaylogo: false, modeBarButtons: [["toImage"]],
        toImageButtonOptions: { format: "svg", filename: spec.file },
      });
      const names = new Set();
      const focused = document.activeElement?.parentElement === legend ? document.activeElement.dataset.name : null;
      legend.replaceChildren();
      for (const trace of now.data) {
        if (trace.showlegend === false || !trace.name || names.has(trace.name)) continue;
        names.add(trace.name);
        const button = document.createElement("button");
        button.type = "button";
        button.dataset.name = trace.name;
        button.innerHTML = picture(trace);
        button.append(trace.name);
        button.setAttribute("aria-pressed", String(visible(trace)));
        button.addEventListener("click", () => {
          shown.set(trace.name, !visible(trace));
          draw();
        });
        legend.append(button);
        if (trace.name === focused) button.focus();
      }
      if (names.size < 2) legend.replaceChildren();
    };
    for (const select of selects) select.addEventListener("change", draw);
    figures.push({ draw, print: (on) => { printing = on; draw(); } });
    draw();
  }
  let waiting = 0;
  window.addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => figures.forEach((figure) => figure.draw()), 150);
  });
  for (const query of [narrow, dark]) query.addEventListener("change", () => figures.forEach((figure) => figure.draw()));
  window.addEventListener("beforeprint", () => figures.forEach((figure) => figure.print(true)));
  window.addEventListener("afterprint", () => figures.forEach((figure) => figure.print(false)));
})();
