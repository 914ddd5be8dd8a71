/* Gathers what is known of the checkpoint and of the view, and asks the table of files/resume_reads.c. */
#include "session/resumes.h"

#include <string.h>

#include "megatron/schedule.h"
#include "megatron/torch_dist.h"
#include "session/shows.h"

bool resumes_is_view(const struct uns_view *view)
{
	return view->needs_training || view->for_megatron;
}

/* The table's name for it: the parameter of world-N is a number, that of full-fsdp a word. */
static const char *name_of(const struct uns_view *view, const char *text, struct uns_arena *arena)
{
	return view->placeholder || !*text ? view->name : uns_arena_printf(arena, "%s-%s", view->name, text);
}

static int miss_add(const struct uns_resume_miss *miss, const char *view, const struct dir_record *record,
		    struct uns_arena *arena, struct uns_findings *out, struct uns_err *err)
{
	return uns_findings_add(out, arena,
				UNS_FINDING(.id = UNS_FOUND_RESUME_MISSES, .scope = UNS_SCOPE_OPTIMIZER,
					    .checkpoint = record->path, .found = uns_str(miss->what),
					    .arg = { { "view", uns_str(view) }, { "effect", uns_str(miss->effect) } }),
				err);
}

static int case_of(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		   const char *text, uint64_t number, struct uns_arena *arena, struct uns_resume_case *out,
		   struct uns_err *err)
{
	const struct uns_catalog *cat = snap->cat;
	struct uns_resume_case c = { .catalog = cat, .hide_rng = u->opt.hide_rng, .keep_rng = u->opt.keep_rng };
	struct uns_view_input in;

	UNS_TRY(show_input_of_training(u, record, snap, &in, err));
	UNS_TRY_ALLOC(c.view = name_of(view, text, arena), err);
	c.training = in.training;
	c.trainer_state_valid = in.trainer_state_valid;
	c.schedule_made = !view->placeholder && strcmp(c.view, "dcp") != 0 && uns_megatron_has_schedule(cat);
	c.by_megatron = view->for_megatron;
	if (c.by_megatron)
		c.megatron = uns_megatron_saved(cat);
	c.other_ranks = view->placeholder && (int64_t)number != cat->summary.world_size;
	*out = c;
	return 0;
}

int resumes_read(struct unshard *u, struct dir_record *record, struct snapshot *snap, const struct uns_view *view,
		 const char *text, uint64_t number, struct uns_arena *arena, struct resume *out, struct uns_err *err)
{
	*out = (struct resume){ .n = 0 };
	if (!resumes_is_view(view))
		return 0;
	UNS_TRY(case_of(u, record, snap, view, text, number, arena, &out->of, err));
	return uns_resume_reads(&out->of, arena, &out->v, &out->n, err);
}

int resumes_judge(const struct resume *resume, const struct dir_record *record, bool leave_assumed,
		  struct uns_arena *arena, struct uns_findings *out, bool *known, struct uns_err *err)
{
	const struct uns_resume_miss *miss;
	struct uns_resume_case c = resume->of;
	size_t n, i;

	*known = false;
	if (!resume->n)
		return 0;
	c.leave_assumed = leave_assumed;
	UNS_TRY(uns_resume_misses(&c, resume->v, resume->n, arena, &miss, &n, known, err));
	for (i = 0; i < n; i++)
		UNS_TRY(miss_add(&miss[i], c.view, record, arena, out, err));
	return 0;
}
