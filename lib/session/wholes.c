/* Hands the weights, under the names that the view "weights" gives them, to whole/. */
#include "session/wholes.h"

#include "base/cleanup.h"
#include "session/shows.h"
#include "whole/whole.h"

/* The tensors under the names that the view gives them. What keeps it from showing them has findings of its own. Tied
 * tensors stay: to leave one out, its bytes must be compared. */
static int weights_name(struct unshard *u, struct dir_record *record, struct snapshot *snap, struct uns_vtree *out,
			struct uns_err *err)
{
	uint64_t parameter;
	const struct uns_view *view = view_find("weights", sizeof("weights") - 1, &parameter);
	const struct uns_view_input in = show_input(u, snap);
	struct uns_err why = { 0 };
	enum show_state state;
	int code = show_state_of(u, record, view, parameter, &state, &why);

	if (code == 0 && state == SHOW_OK)
		code = view->tree(&in, parameter, out, &why);
	return code == -ENOMEM ? uns_oom(err) : 0;
}

int wholes_find(struct unshard *u, struct dir_record *record, struct snapshot *snap, struct uns_arena *arena,
		struct uns_findings *out, struct uns_err *err)
{
	UNS_CLEANUP(uns_vtree_fini) struct uns_vtree tree = { 0 };
	struct uns_whole_input in = { .config = snap->beside.config, .info = &snap->beside.config_info };
	size_t i;

	if (snap->cat->summary.adapter == UNS_ADAPTER_ALONE || !uns_span_left(&in.config))
		return 0;
	UNS_TRY(weights_name(u, record, snap, &tree, err));
	in.v = tree.tensor;
	in.n = tree.n_tensors;
	for (i = 0; i < snap->beside.notes.n; i++)
		in.other_names |= snap->beside.notes.v[i].id == UNS_FOUND_CONFIG_HAS_OTHER_NAMES ||
				  snap->beside.notes.v[i].id == UNS_FOUND_CONFIG_HAS_OTHER_PREFIX;
	return uns_whole_find(&in, arena, out, err);
}
