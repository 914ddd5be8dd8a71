/* Makes states of parameters from states of flat units. Owns the offsets of parameters in a unit, and the ranks that
 * hold them. */
#include "ranks/unit_states.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/path.h"

/* -- which parameters -- */

static int refuse_units(const struct uns_rank_optim *o, enum uns_finding_id id, const char *cause, struct uns_err *why)
{
	return uns_fail_with(why, UNS_FINDING(.id = id, .scope = UNS_SCOPE_OPTIMIZER, .checkpoint = o->cat->path,
					      .arg = { { "n", uns_num(o->n_ids) },
						       { "parameters", uns_num(o->params->n) },
						       { "cause", uns_str(cause) } }));
}

int uns_rank_unit_states_find(struct uns_rank_optim *o, struct uns_err *why)
{
	const struct uns_rank_unit_options *options = &o->params->units;
	uint64_t *elems = UNS_NEW_N(&o->scratch, uint64_t, o->n_ids);
	const struct uns_rank_unit_sizes sizes = { elems, o->n_ids, o->n_files };
	const struct uns_stretched *s;
	struct uns_err reason = { 0 };
	size_t i;
	int code;

	UNS_TRY_ALLOC(elems, why);
	for (i = 0; i < o->n_ids; i++)
		elems[i] = UNS_RANK_UNIT_FROZEN;
	for (s = o->first; s; s = s->next)
		elems[s->id] = s->by_file[0].elems;
	if (options->map) {
		code = uns_rank_units_read(options->map, o->params, &sizes, &o->scratch, &o->units, &reason);
		if (code < 0)
			o->units.v = NULL;
		if (code < 0 && !uns_code_is_finding(code))
			return uns_fail_copy(why, &reason);
		return code < 0 ? refuse_units(o, UNS_FOUND_RANK_UNITS_MAP_DOES_NOT_FIT, reason.text, why) : 0;
	}
	if (options->stale)
		return refuse_units(o, UNS_FOUND_RANK_UNITS_MAP_IS_OF_OTHER_FILES, NULL, why);
	if (!options->assume)
		return refuse_units(o, UNS_FOUND_RANK_UNITS_UNNAMED, NULL, why);
	code = uns_rank_units_find(o->params, &sizes, &o->scratch, &o->units, &reason);
	if (code == 0)
		return 0;
	o->units.v = NULL;
	if (code == -ENOMEM)
		return uns_oom(why);
	return refuse_units(o, UNS_FOUND_RANK_UNITS_NOT_GUESSED, reason.text, why);
}

/* -- states -- */

/* Elements [at, at + n) of the unit, as the parameter's: from every rank that holds some of them. */
static int add_ranges(struct uns_rank_optim *o, const struct uns_stretched *s, uint64_t at, uint64_t n,
		      struct uns_err *err)
{
	uint64_t from, to, begin;
	size_t i;

	for (i = 0; i < o->n_files; i++) {
		const struct uns_stretch *x = &s->by_file[i];
		unsigned size = uns_dtype_size(x->dtype);
		struct uns_piece piece = {
			.kind = UNS_PIECE_RANGE,
			.file = x->file,
			.rank = x->rank,
			.container = UNS_RAW,
		};

		begin = (i % o->units.shard_ranks) * x->elems;
		from = at > begin ? at : begin;
		to = uns_u64_min(at + n, begin + x->elems);
		if (from >= to)
			continue;
		piece.range = (struct uns_range){ from - at, to - from };
		piece.offset_bytes = x->offset_bytes + (from - begin) * size;
		piece.length_bytes = (to - from) * size;
		UNS_TRY(uns_catalog_add_piece(o->cat, &piece, err));
	}
	return 0;
}

static int emit_unit(struct uns_rank_optim *o, const struct uns_stretched *s, struct uns_err *err)
{
	const struct uns_rank_unit *unit = &o->units.v[s->id];
	uint64_t at = 0, n;
	uint32_t unused;
	size_t i;

	for (i = 0; i < unit->n; i++) {
		const struct uns_rank_param *p = &o->params->v[unit->param[i]];
		const struct uns_tensor t = { .name = p->name,
					      .key = s->key,
					      .root = "optimizer",
					      .state = s->state,
					      .role = s->role,
					      .dtype = s->by_file[0].dtype,
					      .shape = p->shape,
					      UNS_TENSOR_ALONE,
					      .inferred = true };

		n = uns_shape_elems(&p->shape);
		UNS_TRY(uns_catalog_add_tensor(o->cat, &t, &unused, err));
		UNS_TRY(add_ranges(o, s, at, n, err));
		at += n;
	}
	return 0;
}

/* -- step counters, which are not flat -- */

/* Each parameter of the unit took as many steps. */
static int share_counters(struct uns_rank_optim *o, size_t n_tensors, struct uns_err *err)
{
	const struct uns_rank_unit *unit;
	struct uns_piece piece;
	struct uns_tensor t;
	unsigned long long id;
	uint32_t unused, p;
	size_t i, k;
	char *end;

	for (i = 0; i < n_tensors; i++) {
		t = o->cat->tensors[i];
		if (!uns_role_is_optimizer(t.role) || !t.inferred || !uns_str_starts(t.key, "state."))
			continue;
		id = strtoull(t.key + strlen("state."), &end, 10); /* "state.3.step" -> 3 */
		if (*end != '.' || id >= o->n_ids || !o->units.v[id].n)
			continue;
		unit = &o->units.v[id];
		o->cat->tensors[i].name = o->params->v[unit->param[0]].name;
		for (k = 1; k < unit->n; k++) {
			t.name = o->params->v[unit->param[k]].name;
			UNS_TRY(uns_catalog_add_tensor(o->cat, &t, &unused, err));
			for (p = 0; p < t.n_pieces; p++) {
				piece = o->cat->pieces[t.first_piece + p];
				UNS_TRY(uns_catalog_add_piece(o->cat, &piece, err));
			}
		}
	}
	return 0;
}

/* -- the param group -- */

/* All parameters in units, in the model's order: what an optimizer that is not sharded numbers. */
static int name_group(struct uns_rank_optim *o, struct uns_err *err)
{
	bool *in = UNS_NEW_N(&o->scratch, bool, o->params->n);
	const char **name = UNS_NEW_N(&o->cat->arena, const char *, o->params->n);
	size_t i, k, n = 0;

	UNS_TRY_ALLOC(in && name, err);
	for (i = 0; i < o->n_ids; i++)
		for (k = 0; k < o->units.v[i].n; k++)
			in[o->units.v[i].param[k]] = true;
	for (i = 0; i < o->params->n; i++)
		if (in[i])
			name[n++] = o->params->v[i].name;
	for (i = 0; i < o->cat->n_groups; i++) {
		if (strcmp(o->cat->groups[i].root, "optimizer") != 0)
			continue;
		o->cat->groups[i].param = name;
		o->cat->groups[i].n_params = n;
	}
	return 0;
}

int uns_rank_unit_states_emit(struct uns_rank_optim *o, struct uns_err *err)
{
	static const char imported[] =
		"imported: the unit map is the one that was kept from the training (unshard meta import)";
	static const char assumed[] = "assumed: the order in the flat units is torch's order of traversal (-o "
				      "assume=fsdp-units); only one choice of wrapped modules fits every rank's sizes, "
				      "but parameters of equal shape may still be swapped";
	size_t n_tensors = o->cat->n_tensors;
	const struct uns_stretched *s;

	for (s = o->first; s; s = s->next)
		UNS_TRY(emit_unit(o, s, err));
	UNS_TRY(share_counters(o, n_tensors, err));
	UNS_TRY(name_group(o, err));
	o->cat->summary.units = o->params->units.map ? imported : assumed;
	return UNS_ADD_FINDING(o->cat, err, RANK_UNITS_NAMED, .arg = { { "cause", uns_str(o->cat->summary.units) } });
}
