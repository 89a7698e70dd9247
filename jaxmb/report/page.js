"use strict";
// Draws the figures of the page from the data in it; nothing is loaded from elsewhere.
(async () => {
  const read = (id) => document.getElementById(id).textContent;
  const unpack = async (id) => {
    const bytes = Uint8Array.from(atob(read(id)), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  };
  const data = JSON.parse(read("data"));
  const axisLook = { automargin: true, ticks: "outside", ticklen: 3, showline: true, mirror: true, linecolor: "#8a929c",
    gridcolor: "#e8ebee", exponentformat: "power", zeroline: false, title: { font: { size: 12 }, standoff: 6 } };
  const look = { autosize: true, showlegend: false, hovermode: "x", hoversubplots: "axis", dragmode: "zoom", barmode: "overlay",
    paper_bgcolor: "#fff", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif", size: 11, color: "#1a1d21" },
    hoverlabel: { font: { size: 11 } } };
  const config = { responsive: true, displaylogo: false,
    displayModeBar: false };

  function layoutOf(own, height, width) {
    const layout = { ...look, ...own, height };
    for (const key of Object.keys(own)) {
      if (!/^[xy]axis/.test(key)) continue;
      layout[key] = { ...axisLook, ...own[key], title: { ...axisLook.title, ...own[key].title } };
    }
    // On narrow screens long names of ticks are cut and labels of the x axis wrapped.
    const most = Math.round(0.5 * width);
    if (layout.margin.l > most) {
      const letters = Math.max(6, Math.floor((most - 14) / 6.5));
      layout.margin = { ...layout.margin, l: most };
      for (const key of Object.keys(own).filter((each) => /^yaxis/.test(each) && own[each].ticktext)) {
        layout[key].ticktext = own[key].ticktext.map((text) => (text.length > letters ? `${text.slice(0, letters - 1)}\u2026` : text));
      }
    }
    const perLine = Math.max(12, Math.floor((width - layout.margin.l - layout.margin.r) / 6.4));
    const label = layout.xaxis.title.text || "", lines = [""];
    for (const word of label.split(" ")) {
      const last = lines[lines.length - 1];
      if (last && last.length + word.length >= perLine) lines.push(word); else lines[lines.length - 1] = last ? `${last} ${word}` : word;
    }
    if (lines.length > 1 && !label.includes("<br>")) {
      layout.xaxis.title.text = lines.join("<br>");
      layout.margin = { ...layout.margin, b: layout.margin.b + 14 * (lines.length - 1) };
      layout.height += 14 * (lines.length - 1);
    }
    // Names of the x axis that do not fit beside each other stand upright.
    const names = layout.xaxis.ticktext || [], letter = 6.5, longest = Math.max(0, ...names.flatMap((each) => each.split("<br>")).map((line) => line.length));
    if (names.length && layout.xaxis.tickangle === undefined) {
      const fits = letter * (longest + 1) * names.length <= width - layout.margin.l - layout.margin.r;
      const more = fits ? 0 : letter * longest - 13;
      layout.xaxis.tickangle = fits ? 0 : 90;
      layout.margin = { ...layout.margin, b: layout.margin.b + more };
      layout.height += more;
    }
    const flat = Object.values(own).some((a) => a && a.ticktext);
    if (flat) layout.hovermode = "closest";
    return layout;
  }

  // One cursor and one range of x for all figures with the same link.
  const linked = new Map();
  function link(plot, name) {
    if (!linked.has(name)) linked.set(name, new Set());
    const group = linked.get(name).add(plot);
    const cursor = document.createElement("div");
    cursor.className = "cursor";
    plot.parentElement.append(cursor);
    plot.showCursor = (x) => {
      const axis = plot._fullLayout.xaxis, size = plot._fullLayout._size, at = x === null ? NaN : axis.d2p(x);
      const inside = at >= 0 && at <= axis._length;
      cursor.style.display = inside ? "block" : "none";
      if (inside) Object.assign(cursor.style, { left: `${axis._offset + at}px`, top: `${size.t}px`, height: `${size.h}px` });
    };
    plot.on("plotly_hover", (event) => group.forEach((other) => other.showCursor(event.points[0].x)));
    plot.on("plotly_unhover", () => group.forEach((other) => other.showCursor(null)));
    plot.on("plotly_relayout", (event) => {
      const range = event["xaxis.range[0]"] === undefined ? null : [event["xaxis.range[0]"], event["xaxis.range[1]"]];
      if (plot.following || (range === null && !event["xaxis.autorange"])) return;
      for (const other of group) {
        if (other === plot) continue;
        other.following = true;
        const change = range ? { "xaxis.range": range } : { "xaxis.range": other.home };
        Plotly.relayout(other, change).finally(() => { other.following = false; });
      }
    });
  }

  // Keys of a chart: + and - zoom along x, arrows move, 0 shows everything; linked charts follow.
  function keys(plot) {
    plot.tabIndex = 0;
    plot.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-0.2, 1], ArrowRight: [0.2, 1], "+": [0, 0.7], "-": [0, 1 / 0.7] }[event.key];
      if (!(step || event.key === "0") || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      let [low, high] = plot.home;
      if (step) {
        const [a, b] = plot._fullLayout.xaxis.range, half = 0.5 * (b - a), middle = a + half + step[0] * half;
        [low, high] = [middle - step[1] * half, middle + step[1] * half];
      }
      Plotly.relayout(plot, { "xaxis.range[0]": low, "xaxis.range[1]": high });
    });
  }

  const PAPER = 680; // width of a printed page of A4 or Letter, pixels
  const queue = [];
  let drawn = 0, failed = 0;
  function draw(element) {
    if (element.dataset.state) return;
    element.dataset.state = "drawn";
    const cell = data.cells[Number(element.dataset.cell)];
    try {
      const layout = layoutOf(cell.layout, cell.height, element.clientWidth);
      element.style.height = `${layout.height}px`;
      Plotly.newPlot(element, cell.data, layout, config);
      const axis = element._fullLayout.xaxis, every = Math.ceil((12 * (axis.ticktext || []).length) / axis._length);
      const changes = {};
      if (every > 1 && axis.tickangle === 90) { // upright names would overlap
        for (const each of ["tickvals", "ticktext"]) changes[`xaxis.${each}`] = axis[each].filter((_, k) => k % every === 0);
      }
      for (const key of Object.keys(layout).filter((each) => /^[xy]axis/.test(each))) {
        const { dtick, range: [low, high] } = element._fullLayout[key];
        if (dtick === "D1") changes[`${key}.nticks`] = Math.floor(Math.abs(high - low) / 0.31); // 1, 2 and 5 alone have labels
      }
      if (Object.keys(changes).length) Plotly.relayout(element, changes);
      element.home = [...element._fullLayout.xaxis.range];
      if (cell.link) link(element, cell.link);
      if (!cell.link || element === element.closest("figure").querySelector(".plot")) keys(element);
      drawn += 1;
    } catch (error) {
      element.dataset.state = "failed";
      failed += 1;
      console.error(error);
    }
    document.body.dataset.drawn = String(drawn);
  }
  const open = (element) => !element.closest("details:not([open])");
  function next() {
    const element = queue.shift();
    if (element === undefined) { document.body.dataset.state = failed ? "failed" : "ready"; return; }
    if (open(element)) draw(element);
    setTimeout(next, 0);
  }

  for (const button of document.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(shown));
      for (const plot of button.closest("figure").querySelectorAll(".plot")) {
        if (!plot.data) continue;
        const index = plot.data.flatMap((trace, k) => (trace.name === button.dataset.name ? [k] : []));
        if (index.length) Plotly.restyle(plot, { visible: shown }, index);
        const lines = (plot.layout.shapes || []).flatMap(({ name }, k) => (name === button.dataset.name ? [[`shapes[${k}].visible`, shown]] : []));
        if (lines.length) Plotly.relayout(plot, Object.fromEntries(lines));
      }
    });
  }

  // Skeletons: drawn on a canvas, so that neither WebGL nor a graphics card is needed.
  const shade = (share) => {
    const stops = [[154, 163, 173], [230, 159, 0], [213, 94, 0]], at = Math.min(Math.max(share, 0), 1) * 2, k = Math.min(Math.floor(at), 1);
    return `rgb(${stops[k].map((c, i) => Math.round(c + (at - k) * (stops[k + 1][i] - c))).join(",")})`;
  };
  function skeleton(root) {
    const body = data.skeletons[Number(root.dataset.skeleton)], canvas = root.querySelector("canvas"), pen = canvas.getContext("2d");
    const pick = root.querySelector("select"), amplitude = root.querySelector("input"), play = root.querySelector("button");
    const shares = root.querySelector(".shares"), points = body.points;
    const longest = Math.max(...body.arrows.flatMap((a) => a.vector).map((v) => Math.hypot(...v)), 1e-30);
    const tip = (o, vector) => o.map((c, i) => c + (Number(amplitude.value) * 0.2 * body.size * vector[i]) / longest);
    const shown = [...points, ...body.arrows.flatMap((a) => a.origin.flatMap((o, k) => [o, tip(o, a.vector[k])]))];
    const low = [0, 1, 2].map((k) => Math.min(...shown.map((p) => p[k]))), high = [0, 1, 2].map((k) => Math.max(...shown.map((p) => p[k])));
    const middle = low.map((v, k) => 0.5 * (v + high[k])), size = Math.max(body.size, Math.hypot(...low.map((v, k) => high[k] - v)));
    let turn = -0.9, tilt = 0.35, zoom = 1, phase = 0, running = body.modes.length > 0, last = null;
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) running = false;
    const mode = () => body.modes[pick ? pick.selectedIndex : 0];
    function project(p) {
      const [x, y, z] = p.map((v, k) => v - middle[k]);
      const a = Math.cos(turn) * x - Math.sin(turn) * y, b = Math.sin(turn) * x + Math.cos(turn) * y;
      const scale = (1.05 * zoom * Math.min(canvas.width, canvas.height)) / size;
      return [canvas.width / 2 + scale * a, canvas.height / 2 - scale * (Math.cos(tilt) * z - Math.sin(tilt) * b)];
    }
    function displaced() {
      const m = mode();
      if (!m) return points;
      const factor = Number(amplitude.value), c = factor * Math.cos(phase), s = factor * Math.sin(phase);
      return points.map((p, k) => p.map((v, i) => v + c * m.re[k][i] - s * m.im[k][i]));
    }
    function lines(at, color, width, colored) {
      const m = mode(), ratio = devicePixelRatio || 1;
      const stroke = (index, style, dash, w) => {
        pen.beginPath(); pen.strokeStyle = style; pen.lineWidth = w * ratio; pen.setLineDash(dash.map((d) => d * ratio));
        index.forEach((i, k) => { const [x, y] = project(at[i]); if (k) pen.lineTo(x, y); else pen.moveTo(x, y); });
        pen.stroke(); pen.setLineDash([]);
      };
      const share = (name) => (colored && m && name in m.energy ? shade(m.energy[name]) : color);
      body.lines.forEach(([index, name]) => stroke(index, share(name), [], width));
      body.springs.forEach(([index, name]) => stroke(index, share(name), [4, 3], width));
      body.ends.forEach(([o, ...tips]) => tips.forEach((t, k) => stroke([o, t], colored ? ["#D55E00", "#009E73", "#0072B2"][k] : color, [], 0.8 * width)));
      body.joints.forEach(([index, name]) => {
        const [x, y] = project(at[index]), energy = colored && m ? m.energy[name] || 0 : 0;
        pen.beginPath(); pen.fillStyle = colored ? share(name) : color;
        pen.arc(x, y, (3 + 6 * Math.sqrt(Math.max(energy, 0))) * ratio, 0, 7); pen.fill();
      });
    }
    function arrows() {
      const ratio = devicePixelRatio || 1;
      for (const { origin, vector, color } of body.arrows) origin.forEach((o, k) => {
        const [x, y] = project(o), [u, v] = project(tip(o, vector[k])), angle = Math.atan2(v - y, u - x);
        pen.beginPath(); pen.strokeStyle = color; pen.lineWidth = 1.4 * ratio; pen.moveTo(x, y); pen.lineTo(u, v);
        for (const side of [2.6, -2.6]) { pen.moveTo(u, v); pen.lineTo(u + 7 * ratio * Math.cos(angle + side), v + 7 * ratio * Math.sin(angle + side)); }
        pen.stroke();
      });
    }
    function paint() {
      const ratio = devicePixelRatio || 1, box = canvas.getBoundingClientRect();
      const width = Math.max(1, Math.round(box.width * ratio)), height = Math.max(1, Math.round(box.height * ratio));
      if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
      pen.fillStyle = "#fff"; pen.fillRect(0, 0, canvas.width, canvas.height);
      pen.lineCap = "round";
      if (body.modes.length) lines(points, "#c9ced4", 1.2, false);
      lines(displaced(), body.modes.length ? "#3a4450" : "#8a929c", 2.2, true);
      if (body.ground !== null) {
        const [x, y] = project(points[body.ground]);
        pen.fillStyle = "#3a4450"; pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x - 8 * ratio, y + 13 * ratio); pen.lineTo(x + 8 * ratio, y + 13 * ratio); pen.fill();
      }
      if (body.arrows.length) arrows();
      axes(ratio);
    }
    function axes(ratio) {
      const [x, y] = [34 * ratio, canvas.height - 30 * ratio], o = project(middle), length = body.size / 8;
      ["x", "y", "z"].forEach((name, k) => {
        const tip = project(middle.map((v, i) => v + (i === k ? length : 0))), size = Math.hypot(tip[0] - o[0], tip[1] - o[1]) || 1;
        const reach = Math.min(1, size / (0.1 * Math.min(canvas.width, canvas.height) * zoom)) * 22 * ratio;
        const u = x + ((tip[0] - o[0]) / size) * reach, v = y + ((tip[1] - o[1]) / size) * reach;
        pen.strokeStyle = pen.fillStyle = ["#D55E00", "#009E73", "#0072B2"][k]; pen.lineWidth = 1.5 * ratio;
        pen.beginPath(); pen.moveTo(x, y); pen.lineTo(u, v); pen.stroke();
        pen.font = `${11 * ratio}px sans-serif`; pen.fillText(name, u + 3 * ratio, v);
      });
    }
    function list() {
      if (!shares || !mode()) return;
      const found = Object.entries(mode().energy).filter(([, s]) => s >= 0.01).sort((a, b) => b[1] - a[1]).slice(0, 6);
      shares.replaceChildren(...found.map(([name, s]) => {
        const row = document.createElement("li"), left = document.createElement("span"), right = document.createElement("span");
        left.textContent = name; right.textContent = `${(100 * s).toFixed(0)} %`; row.append(left, right); return row;
      }));
    }
    function step(time) {
      if (root.isConnected && running && !document.hidden) {
        const visible = canvas.getBoundingClientRect();
        if (visible.bottom > 0 && visible.top < innerHeight && visible.width) {
          if (last !== null) phase += (2 * Math.PI * (time - last)) / 2000;
          last = time; paint();
        } else last = null;
        requestAnimationFrame(step);
      } else last = null;
    }
    const set = (on) => { running = on; if (play) play.textContent = on ? "Pause" : "Play"; if (on) requestAnimationFrame(step); else paint(); };
    if (play) play.addEventListener("click", () => set(!running));
    if (pick) pick.addEventListener("change", () => { list(); paint(); });
    amplitude.addEventListener("input", paint);
    let from = null;
    canvas.addEventListener("pointerdown", (e) => { from = [e.clientX, e.clientY]; canvas.setPointerCapture(e.pointerId); });
    canvas.addEventListener("pointermove", (e) => {
      if (!from) return;
      turn += (e.clientX - from[0]) / 120; tilt = Math.max(-1.57, Math.min(1.57, tilt + (e.clientY - from[1]) / 120));
      from = [e.clientX, e.clientY]; paint();
    });
    canvas.addEventListener("pointerup", () => { from = null; });
    canvas.addEventListener("keydown", (e) => {
      const moves = { ArrowLeft: [-0.1, 0, 1], ArrowRight: [0.1, 0, 1], ArrowUp: [0, 0.1, 1], ArrowDown: [0, -0.1, 1], "+": [0, 0, 1.1], "-": [0, 0, 1 / 1.1] };
      if (e.key === " ") { e.preventDefault(); set(!running); return; }
      if (!(e.key in moves)) return;
      e.preventDefault();
      const [a, b, c] = moves[e.key];
      turn += a; tilt = Math.max(-1.57, Math.min(1.57, tilt + b)); zoom *= c; paint();
    });
    new ResizeObserver(paint).observe(canvas);
    addEventListener("beforeprint", () => { phase = 0; paint(); });
    root.dataset.state = "drawn";
    list(); paint(); set(running);
  }

  for (const root of document.querySelectorAll(".skeleton")) skeleton(root);
  const plots = [...document.querySelectorAll(".plot")];
  document.body.dataset.plots = String(plots.length);
  if (!plots.length) { document.body.dataset.state = "ready"; return; }
  try {
    const script = document.createElement("script");
    script.textContent = await unpack("plotly");
    document.head.append(script);
  } catch (error) {
    for (const plot of plots) plot.textContent = "This browser cannot unpack the drawing library; a newer one shows the figure.";
    document.body.dataset.state = "failed";
    return;
  }
  document.addEventListener("toggle", (event) => {
    if (event.target.open) for (const plot of event.target.querySelectorAll(".plot")) if (open(plot)) draw(plot);
  }, true);
  addEventListener("beforeprint", () => {
    for (const closed of document.querySelectorAll("details:not([open])")) closed.open = true;
    plots.forEach(draw);
    for (const plot of plots.filter((each) => each.data)) {
      const style = getComputedStyle(plot.closest(".cells")), columns = Math.min(Number(style.getPropertyValue("--columns")), 3);
      Plotly.relayout(plot, { width: Math.min(parseFloat(style.getPropertyValue("--width")), PAPER) / columns - 6 });
    }
  });
  addEventListener("afterprint", () => {
    for (const plot of plots.filter((each) => each.data)) Plotly.relayout(plot, { width: null, autosize: true });
  });
  queue.push(...plots);
  next();
})();
