/* The list of facts while it is filled. */
#include "facts/collect.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "files/trainer_state.h"
#include "wire/json_text.h"

int collect_begin(struct collect *c, struct uns_err *err)
{
	size_t n_keys = 0;

	while (uns_trainer_state_key(n_keys))
		n_keys++;
	c->cap_notes = 32 + N_STEPS + c->in->n_option;
	UNS_TRY_ALLOC(c->v = UNS_NEW_N(&c->out->arena, struct uns_fact, n_keys), err);
	UNS_TRY_ALLOC(c->note = UNS_NEW_N(&c->out->arena, const char *, c->cap_notes), err);
	return 0;
}

static int fact_cmp(const void *a, const void *b)
{
	return strcmp(((const struct uns_fact *)a)->key, ((const struct uns_fact *)b)->key);
}

int collect_end(struct collect *c, struct uns_err *err)
{
	if (c->failed)
		return uns_oom(err);
	UNS_TRY(uns_arena_check(&c->scratch, err));
	UNS_TRY(uns_arena_check(&c->out->arena, err));
	if (c->fault.code)
		return uns_fail_copy(err, &c->fault);
	qsort(c->v, c->n, sizeof(*c->v), fact_cmp); /* c->v is never NULL */
	c->out->training = (struct uns_training){ c->v, c->n, c->note, c->n_notes };
	return 0;
}

void collect_fini(struct collect *c)
{
	uns_arena_fini(&c->scratch);
}

bool collect_is_read(struct collect *c, int code, const struct uns_err *why)
{
	uns_fail_if_passing(&c->fault, code, why);
	return code >= 0;
}

void collect_note(struct collect *c, const char *fmt, ...)
{
	va_list ap;

	if (c->n_notes == c->cap_notes)
		return;
	va_start(ap, fmt);
	c->note[c->n_notes++] = uns_arena_vprintf(&c->out->arena, fmt, ap);
	va_end(ap);
}

const struct uns_fact *collect_find(const struct collect *c, const char *key)
{
	size_t i;

	for (i = 0; i < c->n; i++)
		if (strcmp(c->v[i].key, key) == 0)
			return &c->v[i];
	return NULL;
}

void collect_offer(struct collect *c, const char *key, struct uns_span json, const char *origin, bool assumed)
{
	struct uns_fact f = { .assumed = assumed };
	int code = -ENOMEM;
	size_t i = 0;

	while ((f.key = uns_trainer_state_key(i)) && strcmp(f.key, key) != 0)
		i++;
	if (!f.key || collect_find(c, key))
		return;
	f.json = uns_arena_strn(&c->out->arena, (const char *)json.p, uns_span_left(&json));
	f.origin = uns_arena_str(&c->out->arena, origin);
	if (f.json && f.origin)
		code = uns_trainer_state_check_fact(key, f.json, NULL);
	c->failed |= code == -ENOMEM;
	if (code == 0)
		c->v[c->n++] = f;
}

void collect_offer_number(struct collect *c, const char *key, double value, const char *origin)
{
	char text[UNS_NUMBER_ROOM];

	uns_number_print(text, value, value == floor(value) ? 17 : 15); /* 17: whole numbers of any step to the digit */
	collect_offer(c, key, uns_span_of(text, strlen(text)), origin, false);
}

void collect_offer_member(struct collect *c, const char *key, struct uns_span object, const char *origin)
{
	struct uns_span v;

	if (uns_json_text_get(object, key, &v))
		collect_offer(c, key, v, origin, false);
}

void collect_offer_text(struct collect *c, const char *key, const struct uns_text *json, const char *origin)
{
	c->failed |= json->failed;
	if (!json->failed)
		collect_offer(c, key, uns_span_of(json->p, json->len), origin, false);
}
