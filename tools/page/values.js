"use strict";
/* Draws what `unshard show --values --json` has: of each layer and kind of tensor what its elements are. */

const kindOfValues = (v) => v.state || v.role;
const wholeValues = () => data.values.filter((v) => v.expert === null && !v.why);

/* Of several tensors. */
function addedUp(list) {
	const sum = { elements: 0, zeros: 0, negative: 0, nan: 0, infinite: 0, rows: 0, small_rows: 0, squares: 0, largest: 0, counts: new Map() };
	for (const v of list) {
		for (const key of ["elements", "zeros", "negative", "nan", "infinite", "rows", "small_rows"])
			sum[key] += v[key];
		sum.squares += v.norm ** 2;
		sum.largest = Math.max(sum.largest, Math.abs(v.min), Math.abs(v.max));
		v.magnitudes.slice(1).forEach((n, i) => {
			const e = v.magnitudes[0] + i;
			sum.counts.set(e, (sum.counts.get(e) || 0) + n);
		});
	}
	return sum;
}

/* The update that Adam makes, against the weights: of the parameters of which both are known. */
function updateShare(names) {
	let update = 0, weight = 0;
	for (const name of names) {
		const first = updates.get(name), of = weightNorms.get(name);
		if (first !== undefined && of !== undefined) {
			update += first ** 2;
			weight += of ** 2;
		}
	}
	return weight > 0 ? Math.sqrt(update / weight) : null;
}

const updates = new Map(), weightNorms = new Map();

const percent = (part, of) => (of ? `${(100 * part / of).toPrecision(3)} %` : "-");

/* [label, what it says of a sum, how dark from 0 to 1, text] */
const MEASURES = [
	["root mean square", (s) => (s.elements ? Math.sqrt(s.squares / s.elements) : 0), (x) => (x > 0 ? (Math.log10(x) + 12) / 14 : 0), figure],
	["largest", (s) => s.largest, (x) => (x > 0 ? (Math.log10(x) + 12) / 16 : 0), figure],
	["zeros", (s) => (s.elements ? s.zeros / s.elements : 0), (x) => x, (x) => percent(x, 1)],
	["NaN and infinity", (s) => s.nan + s.infinite, (x) => (x ? NaN : 0), count],
	["small rows", (s) => (s.rows ? s.small_rows / s.rows : 0), (x) => x, (x) => percent(x, 1)],
];

const valueCell = (dark, text, title) =>
	heatCell(text, title, Number.isNaN(dark) ? ofHex(RED) : shade(260, 0.45, 0.95 - 0.6 * Math.min(Math.max(dark, 0), 1)));

function histogram(kind, counts) {
	const exponents = [...counts.keys()].sort((a, b) => a - b), low = exponents[0], high = exponents[exponents.length - 1];
	const most = Math.max(...counts.values(), 1), width = 300 / (high - low + 1 || 1);
	const svg = drawing("svg", { viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "img",
		"aria-label": `${kind}: how many elements are of each magnitude, from 2^${low} to 2^${high + 1}` });
	for (const e of exponents) {
		const height = counts.get(e) / most * 96;
		const bar = drawing("rect", { x: (e - low) * width, y: 100 - height, width: width * 0.9, height });
		const title = drawing("title", {});
		title.textContent = `2^${e} to 2^${e + 1}: ${count(counts.get(e))}`;
		bar.append(title);
		svg.append(bar);
	}
	return exponents.length ? framed(kind, "sizes by powers of two", svg, null, [figure(2 ** low), figure(2 ** (high + 1))])
		: make("figure", { class: "chart" }, make("b", {}, kind), " no element but zeros");
}

function drawLayerValues() {
	const cells = new Map(), layers = new Set(), kinds = new Set(), names = new Map();
	for (const v of wholeValues()) {
		const layer = placeOf(v.name)[0] || "(no layer)", key = `${layer}\n${kindOfValues(v)}`;
		layers.add(layer);
		kinds.add(kindOfValues(v));
		cells.set(key, cells.get(key) || []);
		cells.get(key).push(v);
		names.set(layer, (names.get(layer) || new Set()).add(v.name));
	}
	const rows = inOrder(layers), holder = make("div", {});
	const sums = new Map([...cells].map(([key, list]) => [key, addedUp(list)]));
	const put = (label, table) => {
		holder.replaceChildren(table);
		for (const b of buttons)
			b.setAttribute("aria-pressed", String(b.textContent === label));
	};
	const show = ([label, of, dark, text]) => put(label, heatTable(label, "layer", rows, [...kinds], (layer, kind) => {
		const s = sums.get(`${layer}\n${kind}`);
		return s ? valueCell(dark(of(s)), text(of(s)), `${layer} ${kind}: ${plural(s.elements, "element", "elements")}, norm ${
			short(Math.sqrt(s.squares))}, largest ${short(s.largest)}, ${plural(s.zeros, "zero", "zeros")}, ${
			count(s.nan + s.infinite)} NaN or infinity, ${count(s.small_rows)} of ${count(s.rows)} rows small`) : make("td", {});
	}));
	const update = "Adam's update against the weights";
	const showUpdate = () => put(update, heatTable("Norm of the update that Adam makes of its moments, without decay, as a part of the "
		+ "weights' norm", "layer", rows, ["update"], (layer) => {
		const share = updateShare(names.get(layer));
		return share === null ? make("td", {}) : valueCell((Math.log10(share) + 7) / 6, figure(share), `${layer}: ${share}`);
	}));
	const buttons = MEASURES.map((m) => make("button", { type: "button", onclick: () => show(m) }, m[0]));
	if (updates.size)
		buttons.push(make("button", { type: "button", onclick: showUpdate }, update));
	show(MEASURES[0]);
	return [make("div", { class: "tools" }, buttons), holder];
}

/* Of each expert of each layer all weights: fused ones by their parts, others by their names. */
function drawExpertValues() {
	const cells = new Map(), rows = new Set(), columns = new Set();
	for (const v of data.values) {
		const parts = v.name.split("."), e = parts.indexOf("experts");
		if (v.why || kindOfValues(v) !== "weight" || e < 0)
			continue;
		const number = v.expert !== null ? v.expert : /^\d+$/.test(parts[e + 1] || "") ? Number(parts[e + 1]) : null;
		if (number === null)
			continue;
		const row = parts.slice(0, e + 1).join("."), key = `${row}\n${number}`;
		rows.add(row);
		columns.add(number);
		cells.set(key, cells.get(key) || []);
		cells.get(key).push(v);
	}
	const [, of, dark, text] = MEASURES[0];
	return rows.size ? heatTable("Experts: root mean square of their weights", "layer", inOrder(rows), [...columns].sort((a, b) => a - b),
		(row, column) => {
			const list = cells.get(`${row}\n${column}`);
			return list ? valueCell(dark(of(addedUp(list))), text(of(addedUp(list))), `${row}.${column}`) : make("td", {});
		}) : null;
}

function drawValues() {
	if (!data.values)
		return null;
	for (const v of wholeValues()) {
		if (v.update_norm !== null)
			updates.set(v.name, v.update_norm);
		if (v.role === "master" || (v.role === "weight" && !weightNorms.has(v.name)))
			weightNorms.set(v.name, v.norm);
	}
	const all = addedUp(wholeValues()), lost = data.values.filter((v) => v.why && v.expert === null);
	const kinds = [...new Set(wholeValues().map(kindOfValues))].filter((k) => k !== "step");
	return section("values", "Values",
		make("div", { class: "facts" }, fact(count(all.elements), "elements read"), fact(count(all.nan), "NaN"),
			fact(count(all.infinite), "infinite"), fact(percent(all.zeros, all.elements), "zeros"),
			fact(`${count(all.small_rows)} of ${count(all.rows)}`, "small rows")),
		make("p", { class: "quiet" }, "A row is small if all of it is zero. A row of Adam's second moments is small up to 1e-16: such "
			+ "a row had next to no gradient. Histograms: how many elements have which size, without signs."),
		lost.length ? make("details", {}, make("summary", { class: "verdict bad" }, `${plural(lost.length, "tensor", "tensors")} not read`),
			make("ul", {}, lost.map((v) => make("li", {}, make("span", { class: "name" }, `${v.name} ${v.state || ""}`), ` ${v.why}`)))) : null,
		wholeValues().length ? drawLayerValues() : null, drawExpertValues(),
		make("div", { class: "charts" }, kinds.map((k) => histogram(k, addedUp(wholeValues().filter((v) => kindOfValues(v) === k)).counts))));
}

/* What the panel of one tensor says of it. */
function valuesOf(t) {
	const v = (data.values || []).find((x) => x.name === t.name && x.state === t.state && x.role === t.role && x.expert === null);
	if (!v || v.why)
		return null;
	return [make("p", {}, `values from ${short(v.min)} to ${short(v.max)}, mean ${short(v.mean)}, norm ${short(v.norm)}, ${
		plural(v.zeros, "zero", "zeros")}, ${count(v.nan)} NaN, ${count(v.infinite)} infinite${
		v.rows ? `, ${count(v.small_rows)} of ${count(v.rows)} rows small` : ""}`), histogram(t.name, addedUp([v]).counts)];
}
