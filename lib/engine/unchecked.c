/* Checks that several reads share. */
#include "engine/unchecked.h"

void uns_unchecked_init(struct uns_unchecked *of)
{
	pthread_mutex_init(&of->lock, NULL);
	of->n = 0;
}

void uns_unchecked_fini(struct uns_unchecked *of)
{
	pthread_mutex_destroy(&of->lock);
}

bool uns_unchecked_add(struct uns_unchecked *of, struct uns_fd_slot *slot, const struct uns_file *file)
{
	bool is_in;
	size_t i;

	pthread_mutex_lock(&of->lock);
	for (i = of->n; i > 0 && of->v[i - 1].slot != slot; i--)
		;
	is_in = i > 0;
	if (!is_in && of->n < UNS_UNCHECKED_FILES) {
		of->v[of->n++] = (struct uns_unchecked_file){ slot, file };
		is_in = true;
	}
	pthread_mutex_unlock(&of->lock);
	return is_in;
}

/* A descriptor that was closed meanwhile is opened again, and is the catalog's file then, too: one that was written to
 * under the closed one has other times. */
int uns_unchecked_check(const struct uns_unchecked *of, struct uns_fds *fds, struct uns_err *err)
{
	size_t i;
	int code = 0;

	for (i = 0; i < of->n && code == 0; i++) {
		code = uns_fds_pin(fds, of->v[i].slot, of->v[i].file, err);
		if (code < 0)
			break;
		code = uns_fds_check(fds, of->v[i].slot, of->v[i].file, err);
		uns_fds_unpin(fds, of->v[i].slot);
	}
	return code;
}
