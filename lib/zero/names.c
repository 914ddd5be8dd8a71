/* The table of DeepSpeed's file names, and how a name is matched: '#' matches a number, with leading zeros or not.
 */
#include "zero/names.h"

#include <string.h>

enum { MAX_DIGITS = 7, MAX_NUMBERS = 3 };

enum field { DP, MP, LAYER, EXPERT };

static const struct pattern {
	const char *text;
	enum uns_zero_kind kind;
	enum field field[MAX_NUMBERS];
} patterns[] = {
	{ "mp_rank_#_model_states.pt", UNS_ZERO_MODEL, { MP } },
	{ "zero_pp_rank_#_mp_rank_#_model_states.pt", UNS_ZERO_MODEL, { DP, MP } },
	{ "zero_pp_rank_#_mp_rank_#_optim_states.pt", UNS_ZERO_OPTIM, { DP, MP } },
	{ "bf16_zero_pp_rank_#_mp_rank_#_optim_states.pt", UNS_ZERO_OPTIM, { DP, MP } },
	/* before 0.4 */
	{ "zero_pp_rank_#_mp_rank_#optim_states.pt", UNS_ZERO_OPTIM, { DP, MP } },
	{ "layer_#-model_states.pt", UNS_ZERO_LAYER, { LAYER } },
	{ "layer_#-model_#-model_states.pt", UNS_ZERO_LAYER, { LAYER, MP } },
	{ "expert_#_mp_rank_#_model_states.pt", UNS_ZERO_EXPERT, { EXPERT, MP } },
	{ "layer_#_expert_#_mp_rank_#_model_states.pt", UNS_ZERO_EXPERT, { LAYER, EXPERT, MP } },
	{ "expp_rank_#_mp_rank_#_optim_states.pt", UNS_ZERO_EXPERT_OPTIM, { EXPERT, MP } },
};

static bool take_number(const char **s, int32_t *out)
{
	int digits = 0;

	for (*out = 0; **s >= '0' && **s <= '9'; ++*s) {
		if (++digits > MAX_DIGITS)
			return false;
		*out = *out * 10 + (**s - '0');
	}
	return digits > 0;
}

static bool name_matches(const char *name, const struct pattern *p, struct uns_zero_name *out)
{
	const char *t = p->text;
	int32_t number;
	size_t n = 0;

	*out = (struct uns_zero_name){ .kind = p->kind, .dp = -1, .layer = -1, .expert = -1 };
	for (; *t; t++) {
		if (*t != '#') {
			if (*name++ != *t)
				return false;
			continue;
		}
		if (!take_number(&name, &number))
			return false;
		if (p->field[n] == DP)
			out->dp = number;
		else if (p->field[n] == MP)
			out->mp = number;
		else if (p->field[n] == LAYER)
			out->layer = number;
		else
			out->expert = number;
		n++;
	}
	return !*name;
}

bool uns_zero_name_parse(const char *name, struct uns_zero_name *out)
{
	size_t i;

	for (i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
		if (name_matches(name, &patterns[i], out))
			return true;
	return false;
}

size_t uns_zero_count(const struct uns_listing *list, enum uns_zero_kind kind)
{
	struct uns_zero_name name;
	size_t i, n = 0;

	for (i = 0; i < list->n; i++)
		n += list->v[i].kind != UNS_KIND_DIR && uns_zero_name_parse(list->v[i].name, &name) &&
		     name.kind == kind;
	return n;
}

char *uns_zero_name_make(struct uns_arena *arena, enum uns_zero_kind kind, int64_t dp, unsigned mp)
{
	const char *what = kind == UNS_ZERO_MODEL ? "model" : "optim";

	return dp < 0 ? uns_arena_printf(arena, "mp_rank_%02u_%s_states.pt", mp, what)
		      : uns_arena_printf(arena, "zero_pp_rank_%lld_mp_rank_%02u_%s_states.pt", (long long)dp, mp, what);
}

char *uns_zero_name_of_rank(struct uns_arena *arena, const char *name, int32_t dp)
{
	static const char mark[] = "zero_pp_rank_";
	const char *at = strstr(name, mark), *rest;
	int32_t unused;

	if (!at)
		return NULL;
	rest = at += strlen(mark);
	if (!take_number(&rest, &unused))
		return NULL;
	return uns_arena_printf(arena, "%.*s%d%s", (int)(at - name), name, dp, rest);
}
