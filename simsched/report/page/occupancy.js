"use strict";
/* Draws every occupancy of the page from the data beside it: zoom with wheel or buttons, drag to move, hover or tap for
   a job's story. All panels of one figure share their time. */
(() => {
  const holder = document.createElement("div");
  holder.innerHTML = "<svg></svg>";
  const SVG = holder.firstChild.namespaceURI;
  const GPU = 9, GAP = 3, LEFT = 34, RIGHT = 4;
  const make = (name, attributes, parent) => {
    const one = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    if (parent) parent.appendChild(one);
    return one;
  };
  const time = s => s < 120 ? `${s.toFixed(0)} s` : s < 7200 ? `${(s / 60).toFixed(1)} min`
    : s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(1)} days`;

  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

  function figure(root) {
    const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
    const story = root.querySelector(".story"), names = Object.keys(data.panels);
    let from = 0, to = data.until, chosen = null;
    const panels = [...root.querySelectorAll("[data-panel]")].map(host => ({host}));  // two, however many policies
    const select = [...root.querySelectorAll("select")];
    const view = () => select.length ? select.map(one => names[+one.value]) : names;

    function tell(job, name) {
      const facts = data.panels[name].jobs[job];
      if (!facts) { story.textContent = ""; return; }
      const [application, tenant, gpus, submit, start, end, restarts, status, waits] = facts;
      const parts = [`${job} under ${name}`, application, tenant && `tenant ${tenant}`, `asked for ${count(gpus, "GPU")}`,
        `submitted ${time(submit)}`, `waited ${time(start - submit)} to start`, `ended ${time(end)}`,
        `in all ${time(end - submit)}`, count(restarts, "restart"), status,
        waits && `waited: ${waits}`];
      story.textContent = parts.filter(Boolean).join(" · ");
    }

    function tellOutage(index, name) {
      const [node, start, end, kind, ended] = data.panels[name].outages[index];
      const parts = [`node ${node} under ${name}`, kind === "off" ? "off: let go by the policy" : kind,
        `from ${time(start)}`, ended ? `to ${time(end)}` : `to the end of the run, ${time(end)}`,
        `in all ${time(end - start)}`];
      story.textContent = parts.join(" · ");
    }

    function draw() {
      const shown = view();
      panels.forEach((panel, index) => {
        const name = shown[index];
        panel.host.hidden = name === undefined;
        if (name === undefined) return;
        panel.host.textContent = "";
        const {stays, outages} = data.panels[name];
        const caption = document.createElement("p");
        caption.className = "panel";
        caption.textContent = name;
        panel.host.appendChild(caption);
        const width = Math.max(panel.host.clientWidth, 280), tops = [];
        let height = 0;
        data.nodes.forEach(gpus => { tops.push(height); height += gpus * GPU + GAP; });
        const svg = make("svg", {viewBox: `0 0 ${width} ${height + 18}`, width, height: height + 18,
          role: "application", tabindex: 0, "data-name": name,
          "aria-label": `GPUs over time under ${name}; arrows move, plus and minus zoom, n and p go from job to job`},
          panel.host);
        const x = s => LEFT + (s - from) / (to - from) * (width - LEFT - RIGHT);
        const clip = `${root.id}-clip-${index}`;
        make("rect", {x: LEFT, y: 0, width: width - LEFT - RIGHT, height}, make("clipPath", {id: clip}, svg));
        tops.forEach((top, node) => {
          make("rect", {x: LEFT, y: top, width: width - LEFT - RIGHT, height: data.nodes[node] * GPU, class: "room"}, svg);
          const text = make("text", {x: LEFT - 5, y: top + data.nodes[node] * GPU / 2 + 4, "text-anchor": "end"}, svg);
          text.textContent = node;
        });
        if (outages.length) {
          const hatch = make("pattern", {id: `${clip}-hatch`, width: 6, height: 6, patternUnits: "userSpaceOnUse"}, svg);
          make("path", {d: "M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2", stroke: "#777"}, hatch);
        }
        const bars = make("g", {"clip-path": `url(#${clip})`}, svg);
        outages.forEach(([node, start, end, kind], place) => {
          if (end < from || start > to) return;
          const off = kind === "off", y = tops[node], tall = data.nodes[node] * GPU;
          make("rect", {x: x(start), y, width: Math.max(x(end) - x(start), 2), height: tall,
            fill: off ? "#8886" : `url(#${clip}-hatch)`, "data-outage": place}, bars);
          if (!off) make("line", {x1: x(start), x2: x(start), y1: y, y2: y + tall, stroke: "#c00020",
            "pointer-events": "none"}, bars);
        });
        for (const [job, node, first, gpus, start, ready, end, number, colour] of stays) {
          if (end < from || start > to) continue;
          const y = tops[node] + first * GPU, tall = gpus * GPU - 1;
          const bar = make("rect", {x: x(start), y, width: Math.max(x(end) - x(start) - 0.4, 0.4), height: tall,
            fill: data.colours[colour], "data-job": job}, bars);
          if (chosen !== null && chosen !== job) bar.setAttribute("opacity", "0.25");
          if (ready > start) make("rect", {x: x(start), y, width: x(ready) - x(start), height: tall,
            class: "pale", "pointer-events": "none"}, bars);
          if (number > 1) make("line", {x1: x(start), x2: x(start), y1: y, y2: y + Math.min(4, tall), class: "edge"}, bars);
          const event = data.panels[name].jobs[job];
          if (event && event[5] === end && (event[7] === "Failed" || event[7] === "Killed")) {
            make("text", {x: x(end) - 4, y: y + tall / 2 + 4, class: "cross"}, bars).textContent = "×";
          }
        }
        for (let tick = 0; tick <= 4; tick++) {
          const at = from + (to - from) * tick / 4;
          const text = make("text", {x: x(at), y: height + 13, "text-anchor": tick === 0 ? "start" : tick === 4 ? "end" : "middle"}, svg);
          text.textContent = time(at);
        }
        svg.addEventListener("keydown", event => { if (key(event.key, name)) event.preventDefault(); });
        svg.addEventListener("wheel", event => { event.preventDefault();
          zoom(event.deltaY < 0 ? 0.8 : 1.25, (event.offsetX - LEFT) / (width - LEFT - RIGHT)); }, {passive: false});
        svg.addEventListener("pointerover", event => {
          const {job, outage} = event.target.dataset;
          if (job) tell(job, name);
          if (outage) tellOutage(+outage, name);
        });
        svg.addEventListener("click", event => {
          const {outage} = event.target.dataset, job = event.target.dataset.job || null;
          chosen = chosen === job ? null : job;
          if (job) tell(job, name);
          if (outage) tellOutage(+outage, name);
          draw();
        });
        let grabbed = null;
        svg.addEventListener("pointerdown", event => { grabbed = [event.clientX, from, to]; });
        svg.addEventListener("pointermove", event => {
          if (!grabbed || !event.buttons || Math.abs(event.clientX - grabbed[0]) < 4) return;
          const move = (grabbed[0] - event.clientX) / (width - LEFT - RIGHT) * (grabbed[2] - grabbed[1]);
          const start = Math.min(Math.max(grabbed[1] + move, 0), data.until - (grabbed[2] - grabbed[1]));
          [from, to] = [start, start + grabbed[2] - grabbed[1]];
          requestAnimationFrame(draw);
        });
      });
    }

    function key(pressed, name) {
      const span = to - from, jobs = Object.keys(data.panels[name].jobs), place = jobs.indexOf(chosen);
      const shift = by => { from = Math.min(Math.max(from + by * span, 0), data.until - span); to = from + span; draw(); };
      const pick = next => { chosen = jobs[(next + jobs.length) % jobs.length]; tell(chosen, name); draw(); };
      const known = {ArrowLeft: () => shift(-0.2), ArrowRight: () => shift(0.2), "+": () => zoom(0.5, 0.5),
        "-": () => zoom(2, 0.5), "0": () => root.querySelector(".all").click(),
        n: () => pick(place + 1), p: () => pick(place < 0 ? -1 : place - 1)};
      if (!known[pressed]) return false;
      known[pressed]();
      root.querySelector(`svg[data-name="${CSS.escape(name)}"]`)?.focus();  // it was drawn anew
      return true;
    }

    function zoom(factor, where) {
      const span = Math.min((to - from) * factor, data.until), middle = from + (to - from) * Math.min(Math.max(where, 0), 1);
      from = Math.min(Math.max(middle - span * where, 0), data.until - span);
      to = from + span;
      draw();
    }
    root.querySelector(".in").addEventListener("click", () => zoom(0.5, 0.5));
    root.querySelector(".out").addEventListener("click", () => zoom(2, 0.5));
    root.querySelector(".all").addEventListener("click", () => { from = 0; to = data.until; chosen = null; draw(); });
    select.forEach(one => one.addEventListener("change", draw));
    addEventListener("resize", draw);
    root.classList.add("live");
    draw();
  }
  document.querySelectorAll(".occupancy").forEach(figure);
})();
