/* A Trainer's trainer_state.json, where it is missing or no Trainer takes it: the one that the view full shows. */
#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/text.h"
#include "files/trainer_state.h"
#include "repair/repairing.h"
#include "session/shows.h"

static const char NAME[] = "trainer_state.json";

/* Names the values that no file and no fact records. */
static void list_assumed(const struct uns_training *t, struct uns_text *out)
{
	const char *before = "; assumed: ", *key, *json;
	size_t i;

	for (i = 0; i < t->n; i++) {
		if (!t->v[i].assumed)
			continue;
		uns_text_printf(out, "%s%s = %s", before, t->v[i].key, t->v[i].json);
		before = ", ";
	}
	for (i = 0; (key = uns_trainer_state_made_up(t, i, &json)); i++) {
		uns_text_printf(out, "%s%s = %s", before, key, json);
		before = ", ";
	}
}

int repair_trainer_state(struct repair *r, struct repair_checkpoint *p, struct dir_record *record,
			 struct snapshot *snap, struct uns_err *err)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_text_fini) struct uns_text assumed = UNS_TEXT_INIT;
	struct repair_file file = { .path = uns_path_join(&r->arena, p->path, NAME) };
	struct uns_err why = { 0 };
	struct uns_view_input in;
	int code;

	if (!p->lacks_state)
		return 0;
	code = show_input_of_training(r->u, record, snap, &in, &why);
	if (code == 0)
		code = uns_trainer_state_emit(in.training, &text, &why);
	UNS_TRY(uns_fail_if_passing(err, code, &why));
	if (code < 0)
		return repair_refuse(r, "%s of %s cannot be made: %s", NAME, p->path, why.text) < 0 ? uns_oom(err) : 0;
	list_assumed(in.training, &assumed);
	file.text = text.failed || assumed.failed ? NULL : uns_arena_strn(&r->arena, text.p, text.len);
	UNS_TRY_ALLOC(file.path && file.text && repair_plan_file(r, &file) == 0, err);
	UNS_TRY_ALLOC(repair_change(r, file.path, UNSHARD_CHANGE_TRAINER_STATE,
				    "new: made of what the checkpoint and the others of its run record%s",
				    assumed.len ? assumed.p : "") == 0,
		      err);
	p->state_made = true;
	return 0;
}
