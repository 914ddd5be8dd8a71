/* What is made of several sources may be read by nobody who may not read each of them: every combination of
 * modes, owners and groups, against what the kernel would say to each of a number of users. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "io/access.h"

enum { N_USERS = 3, N_GROUPS = 3 };

/* A user is in the groups whose bits are set. */
struct user {
	uint32_t uid, groups;
};

/* As access(2) does it. */
static bool may(const struct user *u, uint32_t uid, uint32_t gid, uint32_t mode, uint32_t bit)
{
	if (u->uid == uid)
		return mode & (bit << 6);
	return mode & (u->groups & (1u << gid) ? bit << 3 : bit);
}

static void check_two(const struct uns_stat *a, const struct uns_stat *b, const struct uns_stat *dir)
{
	struct uns_stat through = *a;
	struct uns_access access = uns_access_of(a);
	struct user u;

	uns_access_demand(&access, a);
	uns_access_demand(&access, b);
	uns_access_through(&through, dir);
	for (u.uid = 0; u.uid < N_USERS; u.uid++) {
		for (u.groups = 0; u.groups < 1 << N_GROUPS; u.groups++) {
			if (may(&u, access.uid, access.gid, access.mode, 4) &&
			    !(may(&u, a->uid, a->gid, a->mode, 4) && may(&u, b->uid, b->gid, b->mode, 4)))
				fail_msg("%u/%u %o and %u/%u %o give %o to user %u in %x", a->uid, a->gid, a->mode,
					 b->uid, b->gid, b->mode, access.mode, u.uid, u.groups);
			if (may(&u, through.uid, through.gid, through.mode, 4) &&
			    !(may(&u, a->uid, a->gid, a->mode, 4) && may(&u, dir->uid, dir->gid, dir->mode, 1)))
				fail_msg("%u/%u %o through %u/%u %o gives %o to user %u in %x", a->uid, a->gid, a->mode,
					 dir->uid, dir->gid, dir->mode, through.mode, u.uid, u.groups);
		}
	}
}

static void nobody_gets_more(void **state)
{
	/* What tells classes apart: read and search for each of them. */
	struct uns_stat a = { .kind = UNS_KIND_FILE }, b = a, dir = { .kind = UNS_KIND_DIR };
	uint32_t i, k, who;

	(void)state;
	for (who = 0; who < N_USERS * N_GROUPS; who++) {
		a.uid = 0;
		a.gid = 0;
		b.uid = dir.uid = who % N_USERS;
		b.gid = dir.gid = who / N_USERS;
		for (i = 0; i < 8; i++) {
			for (k = 0; k < 8; k++) {
				a.mode = (i & 4) << 6 | (i & 2) << 4 | (i & 1) << 2;
				b.mode = (k & 4) << 6 | (k & 2) << 4 | (k & 1) << 2;
				dir.mode = (k & 4) << 4 | (k & 2) << 2 | (k & 1);
				check_two(&a, &b, &dir);
			}
		}
	}
}

/* Where owners and groups are the same nothing is lost. */
static void equals_keep_all(void **state)
{
	const struct uns_stat file = { .uid = 7, .gid = 8, .mode = 0640 }, dir = { .uid = 7, .gid = 8, .mode = 0750 };
	struct uns_access access = uns_access_of(&file);
	struct uns_stat through = file;

	(void)state;
	uns_access_demand(&access, &file);
	assert_int_equal(access.mode, 0440);
	uns_access_through(&through, &dir);
	assert_int_equal(through.mode, 0640);
}

/* A public file in a hub of another owner. */
static void what_all_may_read_stays_readable(void **state)
{
	const struct uns_stat file = { .uid = 7, .gid = 8, .mode = 0600 }, hub = { .uid = 0, .gid = 0, .mode = 0644 };
	struct uns_access access = uns_access_of(&file);

	(void)state;
	uns_access_demand(&access, &file);
	uns_access_demand(&access, &hub);
	assert_int_equal(access.mode, 0400);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nobody_gets_more),
		cmocka_unit_test(equals_keep_all),
		cmocka_unit_test(what_all_may_read_stays_readable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
