"use strict";
/* Draws what `unshard diff --json` has: how far each module of each layer is from what it was. */

/* How much of A is gone: the norm of the difference as a part of the norm of A, as `unshard diff` sorts by. */
function relative(f) {
	if (f.not_finite_changed || f.norm_difference === null)
		return Infinity;
	if (!(f.norm_difference > 0))
		return f.changed ? 0 : -1;
	return f.norm_a > 0 ? f.norm_difference / f.norm_a : Infinity;
}

/* Of several tensors; norms add as squares. One tensor's are its own, to the last bit. */
function together(list) {
	if (list.length === 1)
		return list[0];
	const sum = { elements: 0, changed: 0, not_finite_changed: 0, max_abs: 0, norm_a: 0, norm_difference: 0 };
	for (const f of list) {
		for (const key of ["elements", "changed", "not_finite_changed"])
			sum[key] += f[key];
		sum.max_abs = Math.max(sum.max_abs, f.max_abs === null ? Infinity : f.max_abs);
		for (const key of ["norm_a", "norm_difference"])
			sum[key] = sum[key] === null || f[key] === null ? null : Math.hypot(sum[key], f[key]);
	}
	return sum;
}

function short(n) {
	return n === null ? "not finite" : n === 0 ? "0" : Number(n.toPrecision(4)).toString();
}

/* A change of 1e-6 and less is the palest, one of 1 the darkest; what is not finite is red; null: nothing has changed. */
function changeColour(change) {
	if (change < 0)
		return null;
	if (change === Infinity)
		return ofHex(RED);
	const part = change > 0 ? Math.min(Math.max((Math.log10(change) + 6) / 6, 0), 1) : 0;
	return shade(210, 0.7, 0.92 - 0.62 * part);
}

function changeCell(name, list) {
	if (!list.length)
		return make("td", {});
	const odd = list.find((t) => t.elements === undefined);
	if (odd)
		return make("td", { class: "heat", title: name }, { only_a: "only in A", only_b: "only in B", tied: "tied" }[odd.kind] || odd.kind);
	const f = together(list), change = relative(f);
	return heatCell(change < 0 ? "=" : change === Infinity ? "∞" : figure(change), `${name}: ${count(f.changed)} of ${
		count(f.elements)} elements changed, largest ${short(f.max_abs)}, norm of A ${short(f.norm_a)}, of A-B ${
		short(f.norm_difference)}`, changeColour(change));
}

/* [layer or "", what follows, number of the expert or null] */
function placeOf(name) {
	const parts = name.split("."), i = parts.findIndex((p) => /^\d+$/.test(p));
	if (i < 0)
		return ["", name, null];
	const rest = parts.slice(i + 1), e = rest.indexOf("experts");
	const expert = e >= 0 && /^\d+$/.test(rest[e + 1] || "") ? rest[e + 1] : null;
	if (expert !== null)
		rest[e + 1] = "*";
	return [parts.slice(0, i + 1).join("."), rest.join("."), expert];
}

/* A name may go on in the next line behind a dot. */
function breakable(name) {
	return String(name).split(/(?<=\.)/).flatMap((part) => [part, make("wbr", {})]);
}

function heatTable(caption, rowHead, rows, columns, at) {
	return make("div", { class: "wideTable", tabindex: 0 }, make("table", { class: "heatmap" }, make("caption", {}, caption),
		make("thead", {}, make("tr", {}, make("th", { scope: "col" }, rowHead), columns.map((c) => make("th", { scope: "col" }, breakable(c))))),
		make("tbody", {}, rows.map((r) => make("tr", {}, make("th", { scope: "row", class: "name" }, r),
			columns.map((c) => at(r, c)))))));
}

const inOrder = (names) => [...names].sort(new Intl.Collator("en", { numeric: true }).compare); /* layers.2 before layers.10 */

/* The tensors of one kind: weights, or one state of the optimizer. */
function drawHeat(tensors) {
	const cells = new Map(), layers = new Set(), modules = new Set(), alone = [];
	for (const t of tensors) {
		const [layer, module] = placeOf(t.name);
		if (!layer) {
			alone.push(t);
			continue;
		}
		const key = `${layer}\n${module}`;
		layers.add(layer);
		modules.add(module);
		if (!cells.has(key))
			cells.set(key, []);
		cells.get(key).push(t);
	}
	const most = layers.size ? heatTable("Norm of A-B as a part of the norm of A", "layer", inOrder(layers), [...modules],
		(l, m) => changeCell(`${l}.${m}`, cells.get(`${l}\n${m}`) || [])) : null;
	const byName = new Map(alone.map((t) => [t.name, t]));
	return [most, alone.length ? heatTable("In no layer", "tensor", [...byName.keys()], ["change"],
		(name) => changeCell(name, [byName.get(name)])) : null];
}

function drawChanges(diff) {
	const states = [...new Set(diff.tensors.map((t) => t.state))];
	const holder = make("div", {});
	const show = (state) => {
		holder.replaceChildren(...drawHeat(diff.tensors.filter((t) => t.state === state)).filter(Boolean));
		for (const b of buttons)
			b.setAttribute("aria-pressed", String(b.dataset.state === String(state)));
	};
	const buttons = states.map((s) => make("button", { type: "button", "data-state": String(s), onclick: () => show(s) }, s || "weights"));
	if (states.length)
		show(states[0]);
	return section("changes", "Layers and modules",
		make("div", { class: "legend" }, make("span", {}, "= equal"), [-6, -4, -2, 0].map((e) => make("span", {},
			patchOf(`rgb(${changeColour(10 ** e)})`), figure(10 ** e))), make("span", {}, patchOf(RED), "NaN or infinity came or went")),
		states.length > 1 ? make("div", { class: "tools" }, buttons) : null, holder);
}

function drawExperts(diff) {
	const rows = new Set(), columns = new Set(), cells = new Map();
	for (const e of diff.experts) {
		const i = e.name.lastIndexOf("."), row = e.name.slice(0, i), column = e.name.slice(i + 1);
		rows.add(row);
		columns.add(column);
		cells.set(e.name, e);
	}
	return rows.size ? section("experts", "Experts", heatTable("All tensors of an expert", "layer", inOrder(rows),
		[...columns].sort((a, b) => a - b), (r, c) => changeCell(`${r}.${c}`, cells.has(`${r}.${c}`) ? [cells.get(`${r}.${c}`)] : []))) : null;
}

function drawLargest(diff) {
	const order = (t) => (t.elements !== undefined ? relative(t) : t.kind === "tied" ? -1 : Infinity);
	const rows = diff.tensors.filter((t) => t.kind !== "equal").sort((a, b) => {
		const x = order(a), y = order(b); /* Infinity - Infinity is no number */
		return x === y ? (a.name < b.name ? -1 : 1) : y > x ? 1 : -1;
	});
	const shape = (t, side) => `[${(t[`shape_${side}`] || []).join(", ")}]`;
	const numbers = ["changed", "largest", "mean", "norm A", "norm B", "norm A-B"];
	return section("largest", "The largest changes", make("div", { class: "wideTable", tabindex: 0 }, tableOf(
		[["tensor", "name"], ["dtype"], ["shape"], ...numbers.map((text) => [text, "n"])],
		rows.slice(0, ROWS_SHOWN).map((t) => [
			t.state ? `${t.name} ${t.state}` : t.name,
			t.dtype_a && t.dtype_b && t.dtype_a !== t.dtype_b ? `${t.dtype_a} → ${t.dtype_b}` : t.dtype_a || t.dtype_b,
			t.shape_a && t.shape_b && shape(t, "a") !== shape(t, "b") ? `${shape(t, "a")} → ${shape(t, "b")}` : shape(t, t.shape_a ? "a" : "b"),
			...t.elements === undefined ? [make("td", { colspan: numbers.length }, { only_a: "only in A", only_b: "only in B" }[t.kind] || t.kind)]
				: [count(t.changed), ...["max_abs", "mean_abs", "norm_a", "norm_b", "norm_difference"].map((k) => short(t[k]))]]))),
	rows.length > ROWS_SHOWN ? make("p", { class: "quiet" }, `and ${count(rows.length - ROWS_SHOWN)} more`) : null);
}

function drawOtherValues(diff) {
	const text = (v) => (v === null ? "-" : JSON.stringify(v));
	return diff.values.length ? section("others", "Hyper-parameters, config.json and facts", tableOf(
		[["value", "name"], ["A", "name"], ["B", "name"], ["counts"]],
		diff.values.map((v) => [v.name, text(v.a), text(v.b), v.counts ? "yes" : "no"]))) : null;
}

function drawDiffHeader(diff) {
	const words = { values: "with other values", dtype: "of another dtype", shape: "of another shape", only_a: "only in A",
		only_b: "only in B", within: "within the tolerance" };
	const counts = Object.entries(diff.counts).filter(([, n]) => n).map(([kind, n]) => `${count(n)} ${words[kind] || kind}`).join(", ");
	const total = diff.total;
	return make("header", {}, make("h1", {}, `${diff.a} → ${diff.b}`),
		make("div", { class: `verdict ${diff.equal ? "good" : ""}` }, diff.equal ? "equal" : "different"),
		diff.note ? make("p", { class: "quiet" }, diff.note) : null,
		make("div", { class: "facts" }, fact(counts || "none", "tensors"),
			fact(`${count(total.changed)} of ${count(total.elements)}`, "elements changed"),
			fact(short(total.norm_difference), "norm of A-B"), fact(short(total.norm_a), "norm of A"),
			fact(short(total.max_abs), "largest change"),
			total.not_finite_a || total.not_finite_b
				? fact(`${count(total.not_finite_a)} and ${count(total.not_finite_b)}`, "NaN and infinity in A and B") : null,
			fact(bytes(diff.read_bytes), "read")));
}

function diffParts(diff) {
	return [drawChanges(diff), drawExperts(diff), drawLargest(diff), drawOtherValues(diff)];
}
