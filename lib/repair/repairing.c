/* What a repair plans: changes to report, files that are not copied as they are, and why something was not derived. */
#include "repair/repairing.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/array.h"

int repair_change(struct repair *r, const char *path, enum unshard_change_kind kind, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!UNS_ARENA_ROOM(&r->arena, r->change, r->n_changes, r->cap_changes))
		return -ENOMEM;
	r->change[r->n_changes] =
		(struct unshard_change){ sizeof(struct unshard_change), path, kind, uns_arena_str(&r->arena, text) };
	return r->change[r->n_changes++].text ? 0 : -ENOMEM;
}

int repair_refuse(struct repair *r, const char *fmt, ...)
{
	char text[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (!r->refusal)
		r->refusal = uns_arena_str(&r->arena, text);
	return r->refusal ? 0 : -ENOMEM;
}

int repair_plan_file(struct repair *r, const struct repair_file *file)
{
	struct repair_file *copy = UNS_NEW(&r->arena, struct repair_file);

	if (!copy)
		return -ENOMEM;
	*copy = *file;
	return uns_map_put(&r->by_path, copy->path, copy, NULL) ? 0 : -ENOMEM;
}

const struct repair_file *repair_file_of(const struct repair *r, const char *path)
{
	return uns_map_get(&r->by_path, path);
}

int repair_leave_out(struct repair *r, const char *path, const char *why)
{
	struct repair_file file = { .path = uns_arena_str(&r->arena, path), .drop = true };

	if (repair_file_of(r, path))
		return 0;
	if (!file.path || !UNS_ARENA_ROOM(&r->arena, r->unread, r->n_unread, r->cap_unread))
		return -ENOMEM;
	r->unread[r->n_unread++] = file.path;
	UNS_TRY(repair_plan_file(r, &file));
	return repair_change(r, file.path, UNSHARD_CHANGE_UNREADABLE, "left out: %s", why);
}

int repair_visit_unreadable(void *ctx, const char *path, const struct uns_err *why, struct uns_err *err)
{
	char text[UNS_ERR_TEXT + 64];

	snprintf(text, sizeof(text), "it cannot be read: %s", why->text);
	return repair_leave_out(ctx, path, text) < 0 ? uns_oom(err) : 0;
}
