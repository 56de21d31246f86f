"use strict";
/* Draws every occupancy of the page from the data beside it: zoom with wheel or buttons, drag to move, hover or tap for
   a job's story. All panels of one figure share their time. */
(() => {
  const holder = document.createElement("div");
  holder.innerHTML = "<svg></svg>";
  const SVG = holder.firstChild.namespaceURI;
  const GPU = 9, GAP = 3, LEFT = 34, RIGHT = 4, MOST_HITS = 50;
  const make = (name, attributes, parent) => {
    const one = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) one.setAttribute(key, value);
    if (parent) parent.appendChild(one);
    return one;
  };
  const time = s => s < 120 ? `${s.toFixed(0)} s` : s < 7200 ? `${(s / 60).toFixed(1)} min`
    : s < 172800 ? `${(s / 3600).toFixed(1)} h` : `${(s / 86400).toFixed(1)} days`;

  /* Ticks are at round times, and say hours from two hours on. */
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800,
    1209600, 2419200, 4838400, 9676800];
  const two = number => String(number).padStart(2, "0");
  function ticks(from, to, most) {
    const step = STEPS.find(one => (to - from) / one <= most) || (to - from) / most, found = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step) {
      const hours = Math.floor(at / 3600), minutes = Math.floor(at / 60);
      const label = at === 0 ? "0" : step >= 86400 ? `${+(at / 86400).toFixed(1)} d` : step >= 3600 ? `${hours} h`
        : at < 120 ? `${+at.toFixed(2)} s` : step < 60 ? `${minutes}:${two(Math.round(at % 60))} min`
        : at < 7200 ? `${minutes} min` : `${hours}:${two(minutes % 60)} h`;
      found.push([at, label]);
    }
    return found;
  }

  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

  function figure(root) {
    const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
    const story = root.querySelector(".story"), names = Object.keys(data.panels);
    let from = 0, to = data.until, chosen = null, found = null;
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
          if (chosen !== null ? chosen !== job : found !== null && !found.has(job)) bar.setAttribute("opacity", "0.25");
          if (ready > start) make("rect", {x: x(start), y, width: x(ready) - x(start), height: tall,
            class: "pale", "pointer-events": "none"}, bars);
          if (number > 1) make("line", {x1: x(start), x2: x(start), y1: y, y2: y + Math.min(4, tall), class: "edge"}, bars);
          const event = data.panels[name].jobs[job];
          if (event && event[5] === end && (event[7] === "Failed" || event[7] === "Killed")) {
            make("text", {x: x(end) - 4, y: y + tall / 2 + 4, class: "cross"}, bars).textContent = "×";
          }
        }
        for (const [at, label] of ticks(from, to, Math.max(2, Math.floor(width / 90)))) {
          const end = x(at) > width - 20 ? "end" : x(at) < LEFT + 20 ? "start" : "middle";
          make("text", {x: x(at), y: height + 13, "text-anchor": end, class: "tick"}, svg).textContent = label;
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

    /* Lists the jobs whose id, application, tenant or status holds the words, with their times under the shown policies. */
    function search(words) {
      const hits = root.querySelector(".hits"), shown = view().slice(0, panels.length);
      const parts = words.toLowerCase().split(/\s+/).filter(Boolean), jobs = data.panels[shown[0]].jobs;
      const holds = ([id, facts]) => {
        const text = [id, facts[0], facts[1], facts[7]].join(" ").toLowerCase();
        return parts.every(part => text.includes(part));
      };
      hits.hidden = !parts.length;
      found = parts.length ? new Set(Object.entries(jobs).filter(holds).map(([id]) => id)) : null;
      chosen = null;
      hits.textContent = "";
      story.textContent = found ? `${count(found.size, "job")} found${found.size > MOST_HITS ? `, the first ${MOST_HITS} listed` : ""}` : "";
      if (found && found.size) {
        const table = document.createElement("table"), head = table.createTHead().insertRow(), body = table.createTBody();
        for (const name of ["job", "application", "tenant", "GPUs", ...shown.map(one => `waited, in all: ${one}`)]) {
          const cell = document.createElement("th");
          cell.textContent = name;
          cell.scope = "col";
          head.appendChild(cell);
        }
        for (const job of [...found].slice(0, MOST_HITS)) {
          const row = body.insertRow(), pick = document.createElement("button"), facts = jobs[job];
          pick.type = "button";
          pick.textContent = job;
          pick.addEventListener("click", () => { chosen = job; tell(job, shown[0]); draw(); });
          row.insertCell().appendChild(pick);
          const times = shown.map(one => data.panels[one].jobs[job])
            .map(of => of ? `${time(of[4] - of[3])}, ${time(of[5] - of[3])}` : "-");
          for (const text of [facts[0], facts[1], facts[2], ...times]) row.insertCell().textContent = text;
        }
        hits.appendChild(table);
      }
      draw();
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
    const field = root.querySelector("input[type=search]");
    field.addEventListener("input", () => search(field.value));
    select.forEach(one => one.addEventListener("change", () => field.value ? search(field.value) : draw()));
    addEventListener("resize", draw);
    root.classList.add("live");
    draw();
  }
  document.querySelectorAll(".occupancy").forEach(figure);
})();
