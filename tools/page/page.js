"use strict";
/* Draws a checkpoint. All text comes into the page as text nodes: no name in a checkpoint can become markup. */

const data = JSON.parse(document.getElementById("data").textContent);
const info = data.info || {}; /* a run has none */
/* A checkpoint that could not be opened has a reason in place of a map. */
const map = data.map && data.map.tensors ? data.map : { files: [], tensors: [], layouts: [] };

/* -- elements -- */

function make(tag, attributes, ...children) {
	const e = document.createElement(tag);
	for (const [name, value] of Object.entries(attributes || {})) {
		if (name.startsWith("on"))
			e.addEventListener(name.slice(2), value);
		else if (value !== null && value !== undefined && value !== false)
			e.setAttribute(name, value === true ? "" : value);
	}
	e.append(...children.flat(Infinity).filter((c) => c !== null && c !== undefined));
	return e;
}

function drawing(tag, attributes) {
	const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
	for (const [name, value] of Object.entries(attributes))
		e.setAttribute(name, value);
	return e;
}

const patchOf = (colour) => make("i", { style: `background: ${colour}` });

/* -- colours: [red, green, blue] to 255 -- */

function ofHex(hex) {
	return [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

const hexOf = (colour) => `#${colour.map((v) => v.toString(16).padStart(2, "0")).join("")}`;

/* hue in degrees, others from 0 to 1 */
function shade(hue, saturation, lightness) {
	return [0, 8, 4].map((n) => {
		const k = (n + hue / 30) % 12;
		return Math.round(255 * (lightness - saturation * Math.min(lightness, 1 - lightness) * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
	});
}

/* Black or white: the one of which a text can be read there, with a contrast of 4.5 at least (WCAG 2). */
function inkOn(colour) {
	const [r, g, b] = colour.map((v) => (v > 10 ? ((v / 255 + 0.055) / 1.055) ** 2.4 : v / 255 / 12.92));
	return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
}

/* A cell of a map of numbers. colour: null = the page's own */
function heatCell(text, title, colour) {
	const cell = make("td", { class: "heat", title }, text);
	if (colour) {
		cell.style.background = `rgb(${colour})`;
		cell.style.color = inkOn(colour);
	}
	return cell;
}

/* columns: [[text of the head, class]]; rows: [[text, element or list for each column, or a cell]] */
function tableOf(columns, rows) {
	const cell = (c, i) => (c instanceof HTMLTableCellElement ? c : make("td", { class: columns[i][1] }, c));
	return make("table", {}, make("thead", {}, make("tr", {}, columns.map(([text, name]) => make("th", { scope: "col", class: name }, text)))),
		make("tbody", {}, rows.map((row) => make("tr", {}, row.map(cell)))));
}

const sameAsTable = (columns, rows) => make("details", {}, make("summary", {}, "the same as a table"), tableOf(columns, rows));

function section(id, title, ...children) {
	return make("section", { id, "aria-labelledby": `${id}-title` }, make("h2", { id: `${id}-title` }, title), children);
}

function copyButton(text) {
	const button = make("button", { type: "button", "aria-label": `copy ${text.slice(0, 60)}`, onclick: copy }, "copy");
	function copied() {
		button.textContent = "copied";
		setTimeout(() => { button.textContent = "copy"; }, 1500);
	}
	function copy() { /* a page from file:// may have no clipboard: then the line is selected */
		const select = () => {
			const range = document.createRange();
			range.selectNodeContents(button.parentNode.querySelector("code, pre"));
			getSelection().removeAllRanges();
			getSelection().addRange(range);
			if (document.execCommand("copy"))
				copied();
		};
		if (navigator.clipboard)
			navigator.clipboard.writeText(text).then(copied, select);
		else
			select();
	}
	return button;
}

/* -- numbers -- */

function bytes(n) { /* as the command prints them */
	const units = ["B", "kB", "MB", "GB", "TB", "PB", "EB"];
	let i = 0;
	for (; n >= 999.95 && i < units.length - 1; i++)
		n /= 1000;
	return `${i ? n.toFixed(1) : n} ${units[i]}`;
}

function count(n) {
	return n.toLocaleString("en-US");
}

function plural(n, one, many) {
	return `${count(n)} ${n === 1 ? one : many}`;
}

/* Of a measured number: three digits, which a reader can take in. */
function figure(x) {
	if (x === 0 || !Number.isFinite(x))
		return String(x);
	const size = Math.abs(x);
	return size >= 0.001 && size < 99950 ? String(Number(x.toPrecision(3))) : x.toExponential(1);
}

const elements = (shape) => shape.reduce((n, d) => n * d, 1);
const dtype = (tensor) => tensor.dtype.replace("torch.", "");

/* -- the checkpoint as it is asked for below -- */

const MODEL = new Set(["weight", "buffer"]);
const OPTIMIZER = new Set(["master", "exp_avg", "exp_avg_sq", "step", "optim_other"]);

const isModel = (t) => MODEL.has(t.role);
const isOptimizer = (t) => !isModel(t) && (OPTIMIZER.has(t.role) || t.state !== null);

/* [{rank, file, box: {lo, len} | null, first, count}]: the pieces of a tensor. box: of its dimensions. */
function pieces(t) {
	if (t.layout === null)
		return [];
	const n = t.shape.length;
	return map.layouts[t.layout].map((p) => {
		const isRange = n !== 1 && p.length === 4 && 2 + 2 * n !== 4;
		const lo = isRange ? null : p.slice(2, 2 + n), len = isRange ? null : p.slice(2 + n);
		return { rank: p[0], file: p[1], box: isRange ? null : { lo, len },
			 first: isRange ? p[2] : null, count: isRange ? p[3] : elements(len) };
	});
}

const cutFiles = new Set((info.problems || []).filter((p) => p.id === "shard_cut").map((p) => p.file));

/* What is wrong with a piece's file, in a word; "" = nothing. */
function lossOf(piece) {
	const file = map.files[piece.file] || {};
	return file.missing ? "missing" : cutFiles.has(file.path) ? "truncated" : "";
}

/* rank -> {count: elements that it holds, missing: a file of them is}, by layout: tensors that are cut alike share it. */
const heldByLayout = new Map();
function held(t) {
	if (t.layout === null)
		return new Map();
	const known = heldByLayout.get(t.layout);
	if (known)
		return known;
	const sum = new Map();
	for (const p of pieces(t)) {
		const before = sum.get(p.rank) || { count: 0, missing: false };
		sum.set(p.rank, { count: before.count + p.count, missing: before.missing || lossOf(p) !== "" });
	}
	heldByLayout.set(t.layout, sum);
	return sum;
}

const KINDS = data.kinds; /* [[name, colour, [mark]]], as in the pictures that the command draws */

const RED = "#d00000", PADDING = "#c3c8cf";

const kindByName = new Map();
function kindOf(name) {
	if (!kindByName.has(name)) {
		const lower = name.toLowerCase();
		kindByName.set(name, KINDS.find((k) => k[2].some((mark) => lower.includes(mark))) || KINDS[KINDS.length - 1]);
	}
	return kindByName.get(name);
}

const ranks = [...new Set(map.layouts.flatMap((l) => l.map((p) => p[0])))].sort((a, b) => a - b);

const rankName = (rank) => (rank < 0 ? "no rank known" : `rank ${rank}`);

/* Ranks that follow each other and hold as much of every tensor share a bar: [[rank]] */
const alikeRanks = (function alike() {
	const all = [...new Map(map.tensors.map((t) => [t.layout, t])).values()].map(held);
	const of = (rank) => JSON.stringify(all.map((h) => h.get(rank) || 0));
	const runs = [];
	let last = null;
	for (const rank of ranks) {
		const mine = of(rank);
		if (mine === last)
			runs[runs.length - 1].push(rank);
		else
			runs.push([rank]);
		last = mine;
	}
	return runs;
})();

const runName = (run) => (run.length > 1 ? `ranks ${run[0]} to ${run[run.length - 1]}` : rankName(run[0]));

/* What the view weights calls a tensor, if that is another name, or several: of parts of it. */
const publishedByName = new Map((data.names || []).map(([i, n, first, last]) =>
	[map.tensors[i].name, n > 1 ? `${first} to ${last} (${count(n)})` : first]));

/* What the trainer's own names of the model's tensors have in front, if that is all in which they differ. */
const savedPrefix = (function prefix() {
	const ends = map.tensors.filter(isModel).map((t) => (t.key.endsWith(t.name) ? t.key.slice(0, t.key.length - t.name.length) : null));
	return ends.every((e) => e === ends[0]) ? ends[0] || "" : "";
})();

/* Beside the name in memory: [who has another, which]. */
function otherNames(t) {
	return [["published as", isModel(t) || t.role === "master" ? publishedByName.get(t.name) : null],
		["saved as", t.key === t.name ? null : t.key]].filter((pair) => pair[1]);
}

const namedByProblems = new Set((info.problems || []).map((p) => p.tensor).filter(Boolean));

/* -- what it is -- */

function fact(value, what) {
	return value === null || value === undefined ? null
		: make("div", {}, make("b", {}, String(value)), make("span", {}, what));
}

/* What a path ends in is what it names. */
function pathTitle(path) {
	const end = path.lastIndexOf("/", path.length - 2) + 1;
	return make("h1", {}, make("span", { class: "quiet" }, path.slice(0, end)), path.slice(end));
}

const tensorsAndBytes = (n, size) => `${plural(n, "tensor", "tensors")}, ${bytes(size)}`;

const serious = (info.problems || []).filter((p) => p.severity !== "note");

function drawHeader() {
	const notes = (info.problems || []).length - serious.length;
	const verdict = serious.length ? plural(serious.length, "problem", "problems") : "no problem found in its metadata";
	return make("header", {}, pathTitle(data.path),
		make("div", { class: `verdict ${serious.length ? "bad" : "good"}` },
			serious.length ? make("a", { href: "#problems" }, verdict) : verdict,
			notes ? make("span", { class: "quiet" }, ` · ${plural(notes, "note", "notes")}`) : null),
		make("div", { class: "facts" },
			fact(info.framework || info.format, "saved by"),
			fact(info.step, "step"),
			fact(info.world_size, "ranks"),
			fact(info.weights === undefined ? null : tensorsAndBytes(info.weights, info.weights_bytes), "weights"),
			info.optimizer_tensors ? fact(tensorsAndBytes(info.optimizer_tensors, info.optimizer_bytes), "optimizer") : null,
			fact(info.files === undefined ? null
				: `${plural(info.files - info.files_borrowed, "file", "files")}, ${bytes(info.source_bytes - info.borrowed_bytes)}`, "on disk"),
			info.files_missing ? fact(count(info.files_missing), "files missing") : null));
}

/* -- the lines that load it -- */

function drawViews() {
	const able = [], unable = [];
	for (const [name, view] of Object.entries(info.views || {}))
		(view.state === "ok" ? able : unable).push([name, view]);
	/* The same in another dtype, with nothing more to know. */
	const plain = able.find(([name]) => name === "weights"), notesOf = (v) => JSON.stringify(v.notes || []);
	const isCast = ([name, v]) => plain && /^weights-/.test(name) && notesOf(v) === notesOf(plain[1]);
	const casts = able.filter(isCast).map(([name]) => name);
	const cards = able.filter((v) => !isCast(v)).map(([name, view]) => make("div", { class: "card view" },
		make("h3", {}, name),
		make("div", { class: "line" }, make("code", {}, view.usage), copyButton(view.usage)),
		view.notes && view.notes.length ? make("details", {},
			make("summary", {}, plural(view.notes.length, "thing to know before", "things to know before")),
			make("ul", {}, view.notes.map((n) => make("li", {}, n)))) : null));
	const others = unable.length ? make("details", {},
		make("summary", {}, `${plural(unable.length, "view is", "views are")} not available`),
		make("table", {}, make("tbody", {}, unable.map(([name, view]) => make("tr", {},
			make("th", { scope: "row" }, name), make("td", {}, view.why || view.state)))))) : null;
	return section("load", "Load it",
		able.length ? cards : make("p", {}, "No view can show this checkpoint at this moment."),
		casts.length ? make("p", { class: "quiet" }, `${casts.join(", ")}: the same as weights in that dtype`) : null, others);
}

/* -- what a resume restores, and what it starts from the beginning -- */

function drawResume() {
	const resumes = Object.entries(info.views || {}).filter(([, view]) => view.state === "ok" && view.resume);
	if (!resumes.length)
		return null;
	const happens = (r) => (r.found ? "restored" : `absent: ${[r.without, r.unshard].filter(Boolean).join("; ")}`);
	const known = (key) => resumes.some(([, view]) => view.resume.some((r) => r[key])); /* a column of nothing is left out */
	const cells = (r) => [known("trainer") ? [r.trainer || ""] : [], [r.part], known("files") ? [make("code", {}, r.files || "")] : [],
		[make("td", { class: r.found ? "" : "bad" }, happens(r))]].flat();
	return section("resume", "What a resume restores", make("div", { class: "wideTable" }, tableOf(
		[["view"], known("trainer") ? ["trainer"] : [], ["part"], known("files") ? ["file"] : [], ["what happens"]].filter((c) => c.length),
		resumes.flatMap(([name, view]) => view.resume.map((r, i) =>
			[...(i ? [] : [make("th", { scope: "rowgroup", rowspan: view.resume.length }, name)]), ...cells(r)])))));
}

function drawProblems() {
	if (!(info.problems || []).length)
		return null;
	return section("problems", "Problems and notes", info.problems.map((p) => make("div", { class: "card problem" },
		make(p.severity === "note" ? "span" : "b", {}, p.severity), " ", p.text,
		make("div", { class: "quiet" }, p.advice && !p.text.includes(p.advice) ? `${p.advice} ` : "", make("code", {}, p.id)))));
}

/* -- the map: a bar for each rank, as long as it holds bytes -- */

const ROW = 20, GAP = 4, LABEL = 104, RIGHT = 8;
const selections = {
	weights: ["weights", isModel],
	optimizer: ["optimizer", isOptimizer],
	all: ["everything", () => true],
};

/* For each run of ranks that are alike the tensors of which each holds a part, in the model's order:
 * [[{tensor, from, to, missing}]] in bytes. */
function barsOf(which) {
	const tensors = map.tensors.filter(which), ends = [];
	const bars = alikeRanks.map(([rank], i) => {
		const bar = [];
		ends[i] = 0;
		for (const tensor of tensors) {
			const h = held(tensor).get(rank);
			if (!h)
				continue;
			bar.push({ tensor, from: ends[i], to: ends[i] + h.count * tensor.size, missing: h.missing });
			ends[i] = bar[bar.length - 1].to;
		}
		return bar;
	});
	return { bars, ends, longest: Math.max(1, ...ends) };
}

/* The first segment of which a byte is at `at` or behind it; its number is the bar's length if there is none. */
function segmentFrom(bar, at) {
	let low = 0, high = bar.length;
	while (low < high) {
		const middle = (low + high) >> 1;
		if (bar[middle].to <= at)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Param groups, by the names of their parameters. */
const groupByName = new Map(map.tensors.filter((t) => t.group >= 0).map((t) => [t.name, t.group]));
const groups = [...new Set(groupByName.values())].sort((a, b) => a - b);
let coloursAreGroups = false;

function tensorColour(name) {
	if (!coloursAreGroups)
		return kindOf(name)[1];
	return groupByName.has(name) ? rankColour(groupByName.get(name)) : PADDING;
}

function segmentColour(s) {
	if (!s.tensor)
		return PADDING;
	return s.missing || namedByProblems.has(s.tensor.name) ? RED : tensorColour(s.tensor.name);
}

function segmentLabel(s) {
	const parts = s.tensor ? s.tensor.name.split(".") : ["padding"];
	return parts.length > 1 && /^(weight|bias)$/.test(parts[parts.length - 1]) ? parts[parts.length - 2] : parts[parts.length - 1];
}

/* byte -> x. view: {from, span} in bytes, of what is seen */
const placesOf = (width, { from, span }) => (at) =>
	LABEL + (Math.min(Math.max(at, from), from + span) - from) * (width - LABEL - RIGHT) / span;

function paintBar(context, width, bar, view, style) {
	const place = placesOf(width, view), end = view.from + view.span;
	const labels = [], gaps = [];
	let colour = null, from = 0, to = 0, lastGap = LABEL;
	const flush = () => {
		if (colour) {
			context.fillStyle = colour;
			context.fillRect(place(from), 0, Math.max(place(to) - place(from), 0.5), ROW);
		}
	};
	for (let i = segmentFrom(bar, view.from); i < bar.length && bar[i].from < end; i++) {
		const s = bar[i], c = segmentColour(s), x = place(s.from), right = place(s.to);
		if (c !== colour) {
			flush();
			colour = c;
			from = s.from;
		}
		to = s.to;
		if (right - lastGap > 4 && s.to <= end) { /* tensors that are wide enough for a gap have one */
			gaps.push(right);
			lastGap = right;
		}
		if (right - x > 36)
			labels.push([s, c, x, right]);
	}
	flush();
	context.fillStyle = style.getPropertyValue("--paper");
	for (const x of gaps)
		context.fillRect(x - 0.5, 0, 0.5, ROW);
	for (const [s, c, x, right] of labels) {
		const text = segmentLabel(s), room = right - x - 10;
		if (context.measureText(text).width <= room) {
			context.fillStyle = inkOn(ofHex(c));
			context.fillText(text, x + 5, ROW / 2 + 0.5);
		}
	}
}

function beginText(context, align) {
	context.font = "12px system-ui, sans-serif";
	context.textBaseline = "middle";
	context.textAlign = align;
}

/* A picture of a bar alone: rows that have the same bar show the same picture. */
function stripOf(width, ratio, ...what) {
	const strip = make("canvas", { width: Math.round(width * ratio), height: Math.round(ROW * ratio) }), context = strip.getContext("2d");
	context.scale(ratio, ratio);
	beginText(context, "start");
	paintBar(context, width, ...what);
	return strip;
}

/* Draws rows, [{label, bar}], into a canvas as wide as its holder. seen: {top, height} in pixels, of all rows; at: {row,
 * segment} is outlined; strips: bar -> its picture, of an earlier call that differed in `seen` and `at` alone. */
function painted(canvas, holder, rows, view, { at = null, seen = null, strips = new Map() }) {
	const width = holder.clientWidth || 900, { top, height } = seen || { top: 0, height: GAP + rows.length * (ROW + GAP) };
	const ratio = Math.min(devicePixelRatio || 1, 16000 / height), style = getComputedStyle(document.documentElement);
	const context = canvas.getContext("2d"), first = Math.max(0, Math.floor(top / (ROW + GAP)) - 1);
	if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
		canvas.width = Math.round(width * ratio);
		canvas.height = Math.round(height * ratio);
		canvas.style.height = `${height}px`;
	}
	context.setTransform(ratio, 0, 0, ratio, 0, 0);
	context.clearRect(0, 0, width, height);
	context.translate(0, -top);
	beginText(context, "start");
	for (let i = first; i < rows.length && i * (ROW + GAP) < top + height; i++) {
		const y = GAP + i * (ROW + GAP), { bar } = rows[i];
		context.fillStyle = style.getPropertyValue("--quiet");
		context.fillText(rows[i].label, 8, y + ROW / 2 + 0.5, LABEL - 12);
		if (!strips.has(bar))
			strips.set(bar, stripOf(width, ratio, bar, view, style));
		context.drawImage(strips.get(bar), 0, y, width, ROW);
	}
	if (at && at.segment) {
		const place = placesOf(width, view), x = place(at.segment.from);
		context.strokeStyle = style.getPropertyValue("--ink");
		context.lineWidth = 2;
		context.strokeRect(x, GAP - 1 + at.row * (ROW + GAP), Math.max(place(at.segment.to) - x, 2), ROW + 2);
	}
}

const repaints = [];
function onChange(repaint) {
	repaints.push(repaint);
	addEventListener("resize", repaint);
	matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
}

const MANY_RANKS = 64; /* from then on ranks that are alike are one bar at first */

function drawMap(showTensor) {
	if (!ranks.length)
		return null;
	const canvas = make("canvas", { tabindex: 0, role: "img", "aria-label": "bytes that each rank holds, tensor by tensor; "
		+ "arrow keys move, Enter shows the tensor, plus and minus zoom" });
	const tall = make("div", { class: "tall" }, canvas); /* as high as all rows; the canvas is as high as what is seen */
	const holder = make("div", { class: "map" }, tall);
	const said = make("div", { class: "hidden", "aria-live": "polite" });
	const tip = make("div", { class: "tip", hidden: true });
	const range = make("span", { class: "quiet" });
	const strips = new Map();
	let chosen = null, at = null, view = null, rows = [], together = ranks.length > MANY_RANKS, waiting = false;

	function repaint() {
		strips.clear();
		draw();
	}
	function draw() {
		const height = GAP + rows.length * (ROW + GAP);
		const whole = document.documentElement.classList.contains("printing");
		tall.style.height = `${height}px`;
		painted(canvas, holder, rows, view, { at, strips,
			seen: whole ? null : { top: holder.scrollTop, height: Math.min(height, holder.clientHeight || height) } });
		range.textContent = view.span < chosen.longest ? `${bytes(Math.round(view.from))} to ${bytes(Math.round(view.from + view.span))} of ${
			bytes(chosen.longest)}` : "";
	}
	function drawSoon() { /* once for a frame */
		if (!waiting)
			requestAnimationFrame(() => {
				waiting = false;
				draw();
			});
		waiting = true;
	}
	function look(from, span) {
		view = { from: Math.min(Math.max(from, 0), chosen.longest - span), span };
		strips.clear();
		drawSoon();
	}
	function arrange() {
		rows = alikeRanks.flatMap((run, i) => (together ? [run] : run.map((r) => [r])).map((of) => ({ label: runName(of), bar: chosen.bars[i] })));
		at = null;
		repaint();
	}
	/* byte: stays where it is. */
	function zoom(factor, byte) {
		const wanted = Math.max(view.span / factor, chosen.longest / 1e6, 1), span = wanted > 0.999 * chosen.longest ? chosen.longest : wanted;
		look(byte - (byte - view.from) * span / view.span, span);
	}
	const middle = () => (at && at.segment ? (at.segment.from + at.segment.to) / 2 : view.from + view.span / 2);
	const perPixel = () => view.span / ((holder.clientWidth || 900) - LABEL - RIGHT);

	function words({ row, segment: s }) {
		const whole = elements(s.tensor.shape) * s.tensor.size;
		return `${rows[row].label}: ${s.tensor.name}${s.tensor.state ? ` (${s.tensor.state})` : ""}, ${bytes(s.to - s.from)} of ${
			bytes(whole)}, ${dtype(s.tensor)} [${s.tensor.shape.join(", ")}]`;
	}
	function byteAt(event) {
		return view.from + (event.clientX - canvas.getBoundingClientRect().left - LABEL) * perPixel();
	}
	function under(event) {
		const y = event.clientY - tall.getBoundingClientRect().top, row = Math.floor((y - GAP / 2) / (ROW + GAP)), byte = byteAt(event);
		const bar = rows[row] ? rows[row].bar : [], segment = bar[segmentFrom(bar, byte)];
		return segment && byte >= Math.max(segment.from, view.from) ? { row, segment } : null;
	}
	function choose(name) {
		chosen = barsOf(selections[name][1]);
		view = { from: 0, span: chosen.longest };
		for (const b of buttons.filter((x) => x.dataset.name))
			b.setAttribute("aria-pressed", String(b.dataset.name === name));
		arrange();
	}
	function intoView() {
		const s = at.segment, y = at.row * (ROW + GAP);
		if (s && (s.to <= view.from || s.from >= view.from + view.span))
			look(s.from - view.span / 10, view.span);
		if (y < holder.scrollTop || y + ROW + 2 * GAP > holder.scrollTop + holder.clientHeight)
			holder.scrollTop = y - holder.clientHeight / 2;
	}
	function step(event) {
		const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
		const zooms = { "+": 2, "=": 2, "-": 0.5, 0: 1 / 1e6 };
		if (event.ctrlKey || event.metaKey || event.altKey)
			return;
		if (event.key === "Enter" && at && at.segment) {
			showTensor(at.segment.tensor);
		} else if (zooms[event.key]) {
			zoom(zooms[event.key], middle());
		} else if (moves[event.key]) {
			const [down, right] = moves[event.key];
			event.preventDefault();
			if (!at) {
				at = { row: 0, segment: rows[0].bar[0] || null };
			} else {
				const i = rows[at.row].bar.indexOf(at.segment);
				at.row = Math.min(Math.max(at.row + down, 0), rows.length - 1);
				at.segment = rows[at.row].bar[Math.min(Math.max(i + right, 0), rows[at.row].bar.length - 1)] || null;
			}
			intoView();
			said.textContent = at.segment ? words(at) : "";
			draw();
		}
	}
	let dragged = null; /* {x, from, moved} */
	canvas.addEventListener("pointerdown", (event) => { dragged = { x: event.clientX, from: view.from, moved: false }; });
	addEventListener("pointerup", () => { setTimeout(() => { dragged = null; }); }); /* after the click */
	canvas.addEventListener("pointermove", (event) => {
		if (dragged && view.span < chosen.longest && (dragged.moved || Math.abs(event.clientX - dragged.x) > 4)) {
			dragged.moved = true;
			tip.hidden = true;
			look(dragged.from - (event.clientX - dragged.x) * perPixel(), view.span);
			return;
		}
		const found = under(event);
		tip.hidden = !found || event.pointerType === "touch";
		if (found) {
			tip.textContent = words(found);
			tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - 470))}px`;
			tip.style.top = `${event.clientY + 16}px`;
		}
	});
	canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
	canvas.addEventListener("click", (event) => {
		const found = dragged && dragged.moved ? null : under(event);
		if (found) {
			at = found;
			draw();
			showTensor(found.segment.tensor);
		}
	});
	canvas.addEventListener("wheel", (event) => {
		const across = event.shiftKey ? event.deltaY : event.deltaX;
		if (event.ctrlKey)
			zoom(2 ** (-event.deltaY / 200), byteAt(event));
		else if (view.span < chosen.longest && Math.abs(across) > (event.shiftKey ? 0 : Math.abs(event.deltaY)))
			look(view.from + across * perPixel(), view.span);
		else
			return;
		event.preventDefault();
	}, { passive: false });
	canvas.addEventListener("keydown", step);
	holder.addEventListener("scroll", drawSoon);
	onChange(repaint);
	const button = (text, onclick, more) => make("button", { type: "button", onclick, ...more }, text);
	const buttons = Object.entries(selections).filter(([, [, which]]) => map.tensors.some(which))
		.map(([name, [label]]) => button(label, () => choose(name), { "data-name": name }));
	const switched = (text, on, change) => {
		const toggle = button(text, () => toggle.setAttribute("aria-pressed", String(change())), { "aria-pressed": String(on) });
		return toggle;
	};
	const legend = make("div", { class: "legend" });
	function drawLegend() {
		const kinds = KINDS.filter((k) => map.tensors.some((t) => kindOf(t.name) === k)).map((k) => [k[0], k[1]]);
		const own = coloursAreGroups ? [...groups.map((g) => [`param group ${g}`, rankColour(g)]), ["in no param group", PADDING]] : kinds;
		const red = namedByProblems.size || map.files.some((f) => f.missing) ? [["missing, truncated, or named by a problem", RED]] : [];
		legend.replaceChildren(...[...own, ...red].map(([name, colour]) => make("span", {}, patchOf(colour), name)));
	}
	drawLegend();
	if (groups.length)
		buttons.push(switched("param groups as colours", false, () => {
			coloursAreGroups = !coloursAreGroups;
			drawLegend();
			repaint();
			return coloursAreGroups;
		}));
	if (alikeRanks.length < ranks.length)
		buttons.push(switched("ranks that are alike as one", together, () => {
			together = !together;
			arrange();
			return together;
		}));
	buttons.push(button("+", () => zoom(2, middle()), { "aria-label": "zoom in" }), button("−", () => zoom(0.5, middle()), { "aria-label": "zoom out" }),
		button("whole", () => zoom(1 / 1e6, 0)), range);
	const all = barsOf(() => true);
	const table = sameAsTable([["rank"], ["tensors", "n"], ["bytes", "n"]],
		alikeRanks.flatMap((run, i) => run.map((r) => [rankName(r), count(all.bars[i].length), count(all.ends[i])])));
	const missing = map.files.filter((f) => f.missing);
	const whole = section("map", "Who holds what",
		make("p", { class: "quiet" }, `${plural(ranks.length, "bar", "bars")}, one for each rank. In a bar each tensor is `,
			"a segment, as long as the rank holds bytes of it. ",
			make("span", { class: "screen" }, "Click a segment to see how that tensor is cut. The keys: arrows, Enter, + and −. "
				+ "Ctrl and the wheel zoom.")),
		missing.length ? make("p", { class: "verdict bad" }, `missing: ${missing.map((f) => f.path).join(", ")}`) : null,
		make("div", { class: "tools" }, buttons), legend, holder, said, tip, table);
	/* Weights first, if the ranks hold them. */
	const holdsModel = new Set(map.tensors.filter(isModel).flatMap((t) => [...held(t).keys()]));
	whole.start = () => choose(holdsModel.size > ranks.length / 2 ? "weights" : "all");
	return whole;
}

/* -- other numbers of ranks: what the files of world-N hold -- */

const MOST_ROWS = 256;

/* [{label, bar, bytes}]: files of one rank are one row; a file that all ranks read is a row of its own. */
function rowsOfWorld(found) {
	const rows = new Map();
	for (const file of found.files.filter((f) => f.list !== null)) {
		const rank = /(?:zero_pp_rank_|world_size_\d+_rank_)(\d+)/.exec(file.path);
		const label = rank ? `rank ${rank[1]}` : file.path;
		const row = rows.get(label) || { label, bar: [], bytes: 0, padding: 0, order: rank ? Number(rank[1]) : -1 };
		const list = found.lists[file.list];
		for (let i = 0; i < list.length; i += 2) {
			const n = list[i + 1];
			row.bar.push({ tensor: list[i] >= 0 ? map.tensors[list[i]] : null, from: row.bytes, to: row.bytes + n });
			row.bytes += n;
			row.padding += list[i] === -1 ? n : 0;
		}
		rows.set(label, row);
	}
	return [...rows.values()].sort((a, b) => a.order - b.order);
}

function drawWorlds() {
	if (!(data.worlds || []).length || !ranks.length)
		return null;
	const saved = barsOf(() => true);
	const panels = [{ title: "as saved", rows: alikeRanks.flatMap((run, i) => run.map((r) => ({ label: rankName(r), bar: saved.bars[i],
		bytes: saved.ends[i], padding: 0, order: r }))) },
	...data.worlds.map((w) => ({ title: `world-${w.world}`, why: w.why, rows: w.map ? rowsOfWorld(w.map) : [] }))];
	const longest = Math.max(1, ...panels.flatMap((p) => p.rows.map((r) => r.bytes)));
	const whole = section("worlds", "Other numbers of ranks",
		make("p", { class: "quiet" }, "What each rank's files hold, all on one scale: as they were saved, and as the view "
			+ "world-N shows them. Light grey: padding."),
		make("div", { class: "worlds" }, panels.map((p) => {
			const of = p.rows.filter((r) => r.order >= 0), sizes = of.map((r) => r.bytes);
			const padding = p.rows.reduce((n, r) => n + r.padding, 0);
			p.canvas = make("canvas", { role: "img", "aria-label": `${p.title}: bytes of each rank; the table below has them` });
			p.holder = make("div", { class: "map" }, p.canvas);
			return make("figure", {}, make("figcaption", {}, make("b", {}, p.title), make("span", { class: "quiet" }, p.why ? ""
				: ` ${plural(of.length, "rank", "ranks")}, ${bytes(Math.min(...sizes))} to ${bytes(Math.max(...sizes))} each${
					padding ? `, padding ${bytes(padding)}` : ""}`)),
			p.why ? make("p", { class: "verdict bad" }, p.why) : [p.holder,
				p.rows.length > MOST_ROWS ? make("p", { class: "quiet" }, `and ${count(p.rows.length - MOST_ROWS)} more`) : null,
				sameAsTable([["rank"], ["bytes", "n"]], p.rows.map((r) => [r.label, count(r.bytes)]))]);
		})));
	whole.start = () => {
		for (const p of panels.filter((q) => !q.why))
			painted(p.canvas, p.holder, p.rows.slice(0, MOST_ROWS).map((r) =>
				(r.order < 0 ? { ...r, label: r.label.startsWith("no ") ? r.label : "for all ranks" } : r)),
			{ from: 0, span: longest }, {});
	};
	onChange(whole.start);
	return whole;
}

/* -- one tensor: its boxes, drawn to scale -- */

function rankColour(rank) {
	return rank < 0 ? "#8892a0" : hexOf(shade(70 + (rank * 137.508) % 220, 0.5, 0.6)); /* no red */
}

/* [first column, first row, columns, rows] of a piece; inner: elements of one step along the second dimension. */
function boxOf(p, inner) {
	const n = p.box.lo.length, { lo, len } = p.box;
	return n < 2 ? [lo[0] || 0, 0, n ? len[0] : 1, 1] : [lo[1] * inner, lo[0], len[1] * inner, len[0]];
}

/* A text in the middle of a box that has room for it. */
function nameBox(context, text, [x, y, w, h], colour) {
	if (h < 14 || context.measureText(text).width + 8 > w)
		return;
	context.fillStyle = inkOn(ofHex(colour));
	context.fillText(text, x + w / 2, y + h / 2);
}

/* Rows are the first dimension, columns all others; what no piece covers stays red. */
function paintBoxes(context, t, width, height) {
	const rows = t.shape.length > 1 ? t.shape[0] : 1, columns = elements(t.shape) / rows || 1;
	const inner = columns / (t.shape.length > 1 ? t.shape[1] : columns || 1) || 1;
	const seen = new Set();
	const fill = (x, y, w, h, colour) => {
		context.fillStyle = colour;
		context.fillRect(x / columns * width, y / rows * height, Math.max(w / columns * width, 0.5),
				 Math.max(h / rows * height, 0.5));
	};
	const scaled = (box) => box.map((v, i) => (i % 2 ? v / rows * height : v / columns * width));
	fill(0, 0, columns, rows, RED);
	beginText(context, "center");
	for (const p of pieces(t)) {
		if (lossOf(p)) {
			if (p.box)
				nameBox(context, `${lossOf(p)}: ${rankName(p.rank)}`, scaled(boxOf(p, inner)), RED);
			continue;
		}
		const colour = rankColour(p.rank);
		if (!p.box) { /* in C order: a part of a row, whole rows, a part of a row */
			let first = p.first, rest = p.count;
			while (rest > 0) {
				const x = first % columns, n = x || rest < columns ? Math.min(columns - x, rest)
					: Math.floor(rest / columns) * columns;
				fill(x, Math.floor(first / columns), Math.min(n, columns), Math.max(1, n / columns), colour);
				first += n;
				rest -= n;
			}
			continue;
		}
		const box = boxOf(p, inner), key = box.join();
		const [x, y, w, h] = scaled(box);
		fill(...box, colour);
		if (seen.has(key)) { /* a replica */
			context.save();
			context.beginPath();
			context.rect(x, y, w, h);
			context.clip();
			context.strokeStyle = "#ffffffaa";
			for (let i = -h; i < w; i += 8) {
				context.beginPath();
				context.moveTo(x + i, y + h);
				context.lineTo(x + i + h, y);
				context.stroke();
			}
			context.restore();
		} else {
			nameBox(context, rankName(p.rank), [x, y, w, h], colour);
		}
		seen.add(key);
		context.strokeStyle = "#00000055";
		context.strokeRect(x, y, w, h);
	}
}

function pieceRow(t, p) {
	const where = p.box ? p.box.lo.map((lo, i) => `${lo}:${lo + p.box.len[i]}`).join(", ")
		: `elements ${p.first}:${p.first + p.count} in C order`;
	const file = (map.files[p.file] || { path: "?" }).path;
	return [rankName(p.rank), `[${where}]`, bytes(p.count * t.size), lossOf(p) ? `${file} (${lossOf(p)})` : file];
}

/* What is shown before one is chosen: what lacks a part or has a problem, else the largest of the model. */
function firstTensor() {
	const red = map.tensors.find((t) => namedByProblems.has(t.name) || pieces(t).some(lossOf));
	const bytesOf = (t) => (isModel(t) ? elements(t.shape) * t.size : 0);
	return red || map.tensors.reduce((a, b) => (bytesOf(b) > bytesOf(a) ? b : a));
}

const ROWS_SHOWN = 64, FEW_ROWS = 16;
function drawTensor() {
	const content = make("div", {});
	const whole = section("tensor", "One tensor", make("p", { class: "quiet screen" }, "Choose another in the map or in the tree."), content);
	whole.show = (t, move) => {
		const all = pieces(t), states = map.tensors.filter((s) => s.name === t.name && s !== t);
		const width = Math.min(640, document.documentElement.clientWidth - 24), ratio = devicePixelRatio || 1;
		const rows = t.shape.length > 1 ? t.shape[0] : 1, columns = elements(t.shape) / rows || 1;
		const height = Math.min(320, Math.max(40, Math.round(width * rows / columns)));
		const canvas = make("canvas", { class: "boxes", width: width * ratio, height: height * ratio, role: "img",
			"aria-label": `${t.name}: ${plural(all.length, "piece", "pieces")}; the table below lists them` });
		canvas.style.width = `${width}px`;
		canvas.getContext("2d").scale(ratio, ratio);
		paintBoxes(canvas.getContext("2d"), t, width, height);
		content.replaceChildren(...[
			make("h3", { class: "name", tabindex: -1 }, t.name, t.state ? ` · ${t.state}` : ""),
			make("p", {}, `${dtype(t)} [${t.shape.join(", ")}], ${count(elements(t.shape))} elements, ${
				bytes(elements(t.shape) * t.size)}`),
			...otherNames(t).map(([who, name]) => make("p", {}, `${who} `, make("code", {}, name))),
			...(valuesOf(t) || []),
			t.alias_of ? make("p", {}, "the same bytes as ", make("code", {}, t.alias_of)) : null,
			states.length ? make("div", { class: "tools" }, "also: ", states.map((s) =>
				make("button", { type: "button", onclick: () => whole.show(s, true) },
					`${s.state || s.role} · ${dtype(s)}`))) : null,
			canvas,
			make("p", { class: "quiet" }, "Rows: the first dimension. Columns: the others. A colour is a rank; "
				+ "stripes: several ranks hold the same part; red: its file is missing or truncated."),
			make("details", { open: all.length <= FEW_ROWS }, make("summary", {}, plural(all.length, "piece", "pieces")),
				make("div", { class: "wideTable" }, tableOf([["rank"], ["part", "name"], ["bytes", "n"], ["file", "name"]],
					all.slice(0, ROWS_SHOWN).map((p) => pieceRow(t, p)))),
				all.length > ROWS_SHOWN ? make("p", { class: "quiet" }, `and ${count(all.length - ROWS_SHOWN)} more pieces`) : null),
		].filter(Boolean));
		if (move) {
			whole.scrollIntoView({ block: "start" });
			content.querySelector("h3").focus();
		}
	};
	if (map.tensors.length)
		whole.show(firstTensor(), false);
	return whole;
}

/* -- the tree of modules; layers that are alike, once -- */

function treeOf(tensors) {
	const root = { children: new Map(), tensors: [] };
	for (const t of tensors) {
		const parts = t.name.split(".");
		let node = root;
		for (const part of parts.slice(0, -1)) {
			if (!node.children.has(part))
				node.children.set(part, { children: new Map(), tensors: [] });
			node = node.children.get(part);
		}
		node.tensors.push(t);
	}
	return root;
}

/* What makes two modules alike: their names below, shapes and dtypes. */
function signature(node) {
	if (node.signature === undefined) {
		const own = node.tensors.map((t) => `${t.name.split(".").pop()} ${t.dtype} ${t.shape}`).join(";");
		node.signature = `${own}{${[...node.children].map(([name, c]) => `${name}:${signature(c)}`).join(";")}}`;
		node.elements = node.tensors.reduce((n, t) => n + elements(t.shape), 0);
		node.bytes = node.tensors.reduce((n, t) => n + elements(t.shape) * t.size, 0);
		for (const c of node.children.values()) {
			node.elements += c.elements;
			node.bytes += c.bytes;
		}
	}
	return node.signature;
}

/* [{label, node, times}]: neighbours with numbers that are alike become one. */
function folded(node) {
	const out = [];
	for (const [name, child] of node.children) {
		const last = out[out.length - 1];
		if (last && /^\d+$/.test(name) && /^\d+$/.test(last.to) && Number(name) === Number(last.to) + 1
		    && signature(last.node) === signature(child)) {
			last.to = name;
			last.times++;
		} else {
			out.push({ from: name, to: name, node: child, times: 1 });
		}
	}
	return out.map((f) => ({ label: f.times > 1 ? `${f.from} to ${f.to}` : f.from, node: f.node, times: f.times }));
}

/* A row that shows the tensor when it is chosen. */
function choice(t, showTensor, ...children) {
	return make("div", { class: "leaf", tabindex: 0, role: "button", onclick: () => showTensor(t),
		onkeydown: (event) => { if (event.key === "Enter") showTensor(t); } }, children);
}

/* name: what the tree has of the tensor's name at this place. */
function leafOf(t, name, showTensor) {
	const states = statesByName.get(t.name) || [];
	return choice(t, showTensor, make("span", { class: "row" }, make("span", { class: "name" }, name),
		make("span", { class: "quiet" }, `${dtype(t)} [${t.shape.join(", ")}]`),
		make("span", { class: "quiet" }, bytes(elements(t.shape) * t.size)),
		states.length ? make("span", { class: "quiet" }, states.map((s) => s.state || s.role).join(", ")) : null,
		otherNames(t).filter((pair) => pair[1] !== savedPrefix + t.name).map(([who, name]) =>
			make("span", { class: "quiet" }, `${who} `, make("span", { class: "name" }, name)))));
}

/* A branch is open at first if what is in it is few rows; `whole`: bytes of the model, of which each row has a bar. */
function branchOf(label, node, times, whole, showTensor) {
	const rows = folded(node), open = node.bytes === whole || rows.length + node.tensors.length <= FEW_ROWS / times;
	const share = make("i", { class: "share" });
	share.style.setProperty("--share", `${node.bytes * times / (whole || 1) * 100}%`);
	const details = make("details", { open }, make("summary", {}, make("span", { class: "row" },
		make("span", { class: "name" }, times > 1 ? `${label}  ×${times}` : label), share,
		make("span", { class: "quiet" }, `${bytes(node.bytes * times)}, ${plural(node.elements * times, "element", "elements")}`))));
	const fill = () => { /* what is not opened costs nothing */
		if (details.open && !details.filled) {
			details.filled = true;
			const last = (t) => t.name.split(".").pop();
			const row = (f) => (f.times === 1 && f.node.tensors.length === 1 && !f.node.children.size /* as often: a weight alone */
				? leafOf(f.node.tensors[0], `${f.label}.${last(f.node.tensors[0])}`, showTensor)
				: branchOf(f.label, f.node, f.times, whole, showTensor));
			details.append(...rows.map(row), ...node.tensors.map((t) => leafOf(t, last(t), showTensor)));
		}
	};
	details.addEventListener("toggle", fill);
	details.fill = fill;
	fill();
	return details;
}

const statesByName = new Map();
function drawTree(showTensor) {
	const model = map.tensors.filter(isModel);
	for (const t of map.tensors.filter(isOptimizer))
		statesByName.set(t.name, [...(statesByName.get(t.name) || []), t]);
	if (!map.tensors.length)
		return null;
	const root = treeOf(model.length ? model : map.tensors);
	signature(root);
	const tree = make("div", { class: "tree" }, branchOf("the model", root, 1, root.bytes, showTensor));
	const find = make("input", { type: "search", placeholder: "part of a name", "aria-label": "find a tensor",
		oninput: () => {
			const wanted = find.value.toLowerCase();
			const fits = (t) => [t.name, ...otherNames(t).map((pair) => pair[1])].some((n) => n.toLowerCase().includes(wanted));
			const found = wanted ? map.tensors.filter(fits) : [];
			results.replaceChildren(...found.slice(0, ROWS_SHOWN).map((t) => choice(t, showTensor,
				make("span", { class: "name" }, t.name), " ", make("span", { class: "quiet" }, t.state || t.role))),
				found.length > ROWS_SHOWN ? `and ${count(found.length - ROWS_SHOWN)} more` : "");
		} });
	const results = make("div", { class: "tree" });
	return section("modules", "Modules", make("p", { class: "quiet" }, "A bar is the part of the model's bytes. ×32: 32 modules that are alike. ",
		savedPrefix ? ["The trainer saved each name with ", make("code", {}, savedPrefix), " in front."] : null),
	make("div", { class: "tools" }, find), results, tree);
}

/* -- the training -- */

const SHOWN = ["loss", "eval_loss", "learning_rate", "grad_norm"];

/* trainer_state.json as its trainer wrote it: Python writes numbers there that JSON has not. */
function trainingState() {
	try {
		return data.training && JSON.parse(data.training.replace(/"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b/g,
			(text) => (text[0] === "\"" ? text : "null")));
	} catch (error) {
		return null;
	}
}

function seriesOf(log) {
	const series = new Map();
	for (const entry of log)
		for (const [key, value] of Object.entries(entry))
			if (typeof value === "number" && typeof entry.step === "number" && key !== "step" && key !== "epoch") {
				if (!series.has(key))
					series.set(key, []);
				series.get(key).push([entry.step, value]);
			}
	const order = (key) => (SHOWN.indexOf(key) + SHOWN.length + 1) % (SHOWN.length + 1);
	return [...series].filter(([, points]) => points.length > 1).sort((a, b) => order(a[0]) - order(b[0])).slice(0, 8);
}

/* A drawing with the ends of its axes, [top, bottom] and [left, right]; upright: null = what has none. */
function framed(title, words, svg, upright, across) {
	const ends = (texts, name) => make("div", { class: `axis ${name}` }, texts.map((text) => make("span", {}, text)));
	return make("figure", { class: "chart" }, make("figcaption", {}, make("b", {}, title), make("span", { class: "quiet" }, ` ${words}`)),
		make("div", { class: "frame" }, upright ? ends(upright, "upright") : null, svg, ends(across, "across")));
}

/* marks: checkpoints */
function chart([key, points], marks) {
	const xs = points.map((p) => p[0]), ys = points.map((p) => p[1]);
	const least = (v) => v.reduce((a, b) => Math.min(a, b)), most = (v) => v.reduce((a, b) => Math.max(a, b));
	const low = least(ys), high = most(ys), from = least(xs), to = most(xs);
	const place = ([x, y]) => `${((x - from) / (to - from || 1) * 300).toFixed(1)} ${
		(96 - (y - low) / (high - low || 1) * 92).toFixed(1)}`;
	const every = Math.max(1, Math.ceil(points.length / 1000));
	const line = points.filter((p, i) => i % every === 0 || i === points.length - 1).map(place).join(" L ");
	const svg = drawing("svg", { viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "img",
		"aria-label": `${key}: from ${ys[0]} at step ${from} to ${ys[ys.length - 1]} at step ${to}` });
	for (const { step, state } of marks.filter((m) => m.step >= from && m.step <= to)) {
		const x = place([step, low]).split(" ")[0];
		svg.append(drawing("path", { class: state === "ok" ? "mark" : "mark bad", d: `M ${x} 0 L ${x} 100` }));
	}
	svg.append(drawing("path", { d: `M ${line}` }));
	return framed(key, `last ${figure(ys[ys.length - 1])}`, svg, [figure(high), figure(low)], [`step ${from}`, `step ${to}`]);
}

function drawTraining() {
	const state = trainingState();
	if (!state)
		return null;
	const runOf = (path) => path.slice(0, path.lastIndexOf("/") + 1);
	const marks = (data.run || []).filter((c) => c.step >= 0 && runOf(c.path) === runOf(data.newest));
	const charts = seriesOf(state.log_history || []).map((series) => chart(series, marks));
	return section("training", "The training",
		data.newest ? make("p", {}, "As ", make("span", { class: "name" }, data.newest), " has it.") : null,
		make("div", { class: "facts" }, fact(state.global_step, state.max_steps > 0 ? `step of ${count(state.max_steps)}` : "step"),
			typeof state.epoch === "number" ? fact(state.epoch.toFixed(3), "epoch") : null,
			fact(state.best_metric, "best metric"), fact(state.train_batch_size, "batch size of a device")),
		charts.length && marks.length ? make("p", { class: "quiet" }, "Upright lines: checkpoints. Red: not in order.") : null,
		charts.length ? make("div", { class: "charts" }, charts)
			: make("p", { class: "quiet" }, "trainer_state.json has no history of two steps or more."));
}

/* -- a run -- */

function drawRunHeader() {
	const bad = data.run.filter((c) => c.state !== "ok" && c.state !== "saving").length;
	return make("header", {}, pathTitle(data.path),
		make("div", { class: `verdict ${bad ? "bad" : "good"}` }, bad
			? `${count(bad)} of ${plural(data.run.length, "checkpoint", "checkpoints")} not in order`
			: "no problem found in their metadata"),
		make("div", { class: "facts" }, fact(count(data.run.length), "checkpoints"),
			fact(bytes(data.run.reduce((n, c) => n + c.bytes, 0)), "on disk")));
}

function drawCheckpoints() {
	const largest = data.run.reduce((n, c) => Math.max(n, c.bytes), 1);
	const known = (n) => (n < 0 ? "-" : count(n));
	const row = (c) => {
		const bar = make("div", { class: "bar" });
		bar.style.width = `${c.bytes / largest * 100}%`;
		return [[c.path, c.state !== "ok" && c.problem ? make("div", { class: "quiet" }, c.problem) : null],
			c.format || "-", known(c.step), known(c.world_size), bytes(c.bytes), bar,
			make("td", { class: c.state === "ok" ? "" : "verdict bad" }, c.state)];
	};
	return section("checkpoints", "Checkpoints", tableOf([["checkpoint", "name"], ["format", "format"], ["step", "n"], ["ranks", "n"],
		["size", "n"], ["", "wide"], ["state"]], data.run.map(row)));
}

/* -- the structure in a few lines, to paste -- */

/* FNV-1a of 64 bits: of names, dtypes and shapes; equal for equal structures. */
function hashOf(text) {
	let h = 0xcbf29ce484222325n;
	for (const byte of new TextEncoder().encode(text))
		h = (h ^ BigInt(byte)) * 0x100000001b3n & 0xffffffffffffffffn;
	return h.toString(16).padStart(16, "0");
}

const MOST_KINDS = 6, MOST_COLUMNS = 200;

function fingerprint() {
	const model = map.tensors.filter(isModel), optimizer = map.tensors.filter(isOptimizer);
	const tally = (list, of) => {
		const sums = new Map();
		for (const t of list)
			sums.set(of(t), (sums.get(of(t)) || 0) + 1);
		const kinds = [...sums].sort((a, b) => b[1] - a[1]), more = kinds.length - MOST_KINDS;
		return kinds.slice(0, MOST_KINDS).map(([k, n]) => `${k} ×${n}`).join(", ") + (more > 0 ? ` and ${count(more)} more` : "");
	};
	const structure = model.map((t) => `${t.name} ${dtype(t)} ${t.shape}`).sort().join("\n");
	const top = folded(treeOf(model)).map((f) => `${f.label}${f.node.children.size ? `{${folded(f.node).map((g) =>
		g.times > 1 ? `${g.label} ×${g.times}` : g.label).slice(0, MOST_KINDS).join(", ")}}` : ""}`).slice(0, MOST_KINDS).join(", ");
	const lines = [
		`unshard ${data.version}, structure ${hashOf(structure)}`,
		`format     ${info.format}${info.framework ? ` (${info.framework})` : ""}`,
		`step       ${info.step ?? "not known"}, ranks ${info.world_size ?? "not known"}, files ${info.files} (${
			info.files_missing} missing)`,
		`weights    ${count(model.length)} tensors, ${count(model.reduce((n, t) => n + elements(t.shape), 0))} elements`,
		`dtypes     ${tally(model, dtype) || "none"}`,
		`modules    ${top || "none"}`,
		`optimizer  ${tally(optimizer, (t) => `${t.state || t.role} ${dtype(t)}`) || "none"}`,
		`layouts    ${count(map.layouts.length)} for ${count(map.tensors.length)} tensors`,
		`views      ${Object.entries(info.views || {}).filter(([, v]) => v.state === "ok").map(([n]) => n).join(", ") || "none"}`,
		`problems   ${tally(info.problems || [], (p) => p.id) || "none"}`,
	];
	/* A name may have any characters, and any length. */
	return lines.map((line) => [...line.replace(/[\p{Cc}\u2028\u2029]/gu, "?")].slice(0, MOST_COLUMNS).join("")).join("\n");
}

function drawFingerprint() {
	const text = fingerprint();
	return section("fingerprint", "To paste into an issue",
		make("div", { class: "card line" }, make("pre", { style: "flex:1;margin:0;white-space:pre-wrap" }, text), copyButton(text)),
		make("p", { class: "quiet" }, "Names of top modules, kinds and counts; no value and no path."));
}

/* -- on paper -- */

/* Paper has no controls: what is folded is opened, level by level. */
const MOST_OPENED = 400;
function openAll() {
	const opened = [];
	let closed = [];
	do {
		closed = [...document.querySelectorAll("details:not([open])")].slice(0, MOST_OPENED - opened.length);
		for (const details of closed) {
			details.open = true;
			details.fill?.();
		}
		opened.push(...closed);
	} while (closed.length);
	return opened;
}

function printable() {
	let opened = [];
	addEventListener("beforeprint", () => {
		opened = openAll();
		document.documentElement.classList.add("printing"); /* colours of canvases are those of white paper */
		repaints.forEach((repaint) => repaint());
	});
	addEventListener("afterprint", () => {
		for (const details of opened)
			details.open = false;
		document.documentElement.classList.remove("printing");
		repaints.forEach((repaint) => repaint());
	});
}

/* -- the page -- */

(function main() {
	const tensor = drawTensor();
	const showTensor = (t) => tensor.show(t, true);
	const rankMap = drawMap(showTensor), worlds = drawWorlds();
	const first = [drawViews(), drawResume()], wrong = drawProblems();
	const parts = (data.diff ? diffParts(data.diff) : data.run ? [drawCheckpoints(), drawTraining()]
		: [...(serious.length ? [wrong, ...first] : [...first, wrong]), rankMap, worlds, drawTree(showTensor),
		   map.tensors.length ? tensor : null, drawValues(), drawTraining(), drawFingerprint()]).filter(Boolean);
	const links = make("nav", { "aria-label": "parts of this page" },
		parts.map((p) => make("a", { href: `#${p.id}` }, p.querySelector("h2").textContent)));
	const header = data.diff ? drawDiffHeader(data.diff) : data.run ? drawRunHeader() : drawHeader();
	header.append(links);
	document.title = `${data.diff ? `${data.diff.a} → ${data.diff.b}` : data.path} · unshard`;
	document.getElementById("main").append(header, ...parts,
		make("footer", { class: "quiet" }, `Made by unshard ${data.version}. This file needs no network.`));
	for (const part of [rankMap, worlds].filter(Boolean))
		part.start();
	printable();
})();
