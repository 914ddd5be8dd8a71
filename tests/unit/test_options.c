/* Options after -o: values, lists, what is handed on, what is refused and in which words. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "../../tools/hub.c"
#include "../../tools/options.c"

static const struct {
	const char *text;
	bool ok;
	uint64_t bytes;
} sizes[] = {
	{ "50GB", true, UINT64_C(50000000000) },
	{ "5GiB", true, UINT64_C(5) << 30 },
	{ "512M", true, UINT64_C(512) << 20 },
	{ "64mib", true, UINT64_C(64) << 20 },
	{ "7kB", true, 7000 },
	{ "1000", true, 1000 },
	{ "12B", true, 12 },
	{ "18446744073709551615", true, UINT64_MAX },
	{ "", false, 0 },
	{ "0", false, 0 },
	{ "GB", false, 0 },
	{ "-1", false, 0 },
	{ " 1", false, 0 },
	{ "1.5GB", false, 0 },
	{ "5GX", false, 0 },
	{ "5GBx", false, 0 },
	{ "18446744073709551616", false, 0 },
	{ "18446744073709551615K", false, 0 },
};

static void test_sizes(void **state)
{
	uint64_t bytes;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		bytes = 0;
		if (options_size(sizes[i].text, &bytes) != sizes[i].ok)
			fail_msg("%s", sizes[i].text);
		if (sizes[i].ok)
			assert_int_equal(bytes, sizes[i].bytes);
	}
}

static void test_all_of_them(void **state)
{
	struct options o = { .log = NULL };
	struct unshard_error err = { 0 };

	(void)state;
	assert_int_equal(options_parse(&o, VERB_MOUNT,
				       "view=weights,weights_key=a,root=b\\,c,model=/m,model=run=/n,follow=/f,"
				       "max_shard_size=5GB,mem=1M,cache_dir=/c,cache_size=2GiB,settle=7",
				       &err),
			 0);
	assert_int_equal(options_parse(&o, VERB_MOUNT,
				       ",allow_other,max_threads=3,cache=sources,readahead=128,log=/l,debug,,"
				       "delay_read_us=9,",
				       &err),
			 0);
	assert_string_equal(o.library.view, "weights");
	assert_int_equal(o.library.n_weight_root, 2);
	assert_string_equal(o.library.weight_root[0], "a");
	assert_string_equal(o.library.weight_root[1], "b,c");
	assert_int_equal(o.library.n_model, 2);
	assert_string_equal(o.library.model[0], "/m");
	assert_string_equal(o.library.model[1], "run=/n");
	assert_int_equal(o.library.n_follow, 1);
	assert_string_equal(o.library.follow[0], "/f");
	assert_int_equal(o.library.max_shard_size_bytes, UINT64_C(5000000000));
	assert_int_equal(o.library.mem_bytes, 1 << 20);
	assert_string_equal(o.library.cache_dir, "/c");
	assert_int_equal(o.library.cache_size_bytes, UINT64_C(2) << 30);
	assert_int_equal(o.library.settle_seconds, 7);
	assert_false(o.library.no_settling);
	assert_int_equal(o.library.delay_read_us, 9);
	assert_true(o.allow_other && o.debug);
	assert_int_equal(o.max_threads, 3);
	assert_int_equal(o.read_ahead_kb, 128);
	assert_int_equal(o.cache, 2);
	assert_string_equal(o.log, "/l");
	assert_null(o.fuse);
	options_fini(&o);
}

static void test_paths_become_absolute(void **state)
{
	struct options o = { .log = NULL };
	struct unshard_error err = { 0 };
	char here[PATH_MAX], want[PATH_MAX + 16];

	(void)state;
	assert_non_null(getcwd(here, sizeof(here)));
	assert_int_equal(options_parse(&o, VERB_MOUNT, "log=x/y,model=r=z", &err), 0);
	snprintf(want, sizeof(want), "%s/x/y", here);
	assert_string_equal(o.log, want);
	snprintf(want, sizeof(want), "r=%s/z", here);
	assert_string_equal(o.library.model[0], want);
	options_fini(&o);
}

static void test_settle_of_zero_never_waits(void **state)
{
	struct options o = { .log = NULL };
	struct unshard_error err = { 0 };

	(void)state;
	assert_int_equal(options_parse(&o, VERB_MOUNT, "settle=0", &err), 0);
	assert_true(o.library.no_settling);
	options_fini(&o);
}

static void test_handed_on_and_ignored(void **state)
{
	struct options o = { .log = NULL };
	struct unshard_error err = { 0 };

	(void)state;
	assert_int_equal(options_parse(&o, VERB_MOUNT,
				       "rw,default_permissions,_netdev,x-systemd.automount,"
				       "max_background=9,nofail",
				       &err),
			 0);
	assert_string_equal(o.fuse, "default_permissions,max_background=9");
	options_fini(&o);
}

static const struct {
	const char *text, *sentence;
	unsigned verb;
} refused[] = {
	{ "vieww=x", "unknown option 'vieww'; the options are view, weights_key, strip, names, assume, model",
	  VERB_MOUNT },
	{ "uid=3", "unknown option 'uid'", VERB_MOUNT },
	{ "view", "option view needs a value: view=VIEW", VERB_MOUNT },
	{ "view=", "option view needs a value: view=VIEW", VERB_MOUNT },
	{ "debug=1", "option debug takes no value", VERB_MOUNT },
	{ "mem=lots", "mem=lots: not a size such as 50GB, 5GiB or 512M", VERB_MOUNT },
	{ "settle=1h", "settle=1h: not a number", VERB_MOUNT },
	{ "settle=-1", "settle=-1: not a number", VERB_MOUNT },
	{ "max_threads=99999999999", "max_threads=99999999999: not a number", VERB_MOUNT },
	{ "allow_other", "option allow_other changes nothing here: leave it out (only these use it: mount)", VERB_LS },
	{ "fact=a=1",
	  "option fact changes nothing here: leave it out (only these use it: mount, show, check, export, warm)",
	  VERB_LS },
	{ "cache=all", "cache=all: expected both|mount|sources", VERB_MOUNT },
	{ "cache=mountt", "cache=mountt: expected both|mount|sources", VERB_MOUNT },
	{ "cache=mount|sources", "cache=mount|sources: expected both|mount|sources", VERB_MOUNT },
	{ "cache=mount", "option cache changes nothing here: leave it out (only these use it: mount)", VERB_EXPORT },
	{ "nofail", "unknown option 'nofail'; the options are weights_key, strip", VERB_EXPORT },
};

static void test_refused(void **state)
{
	struct unshard_error err;
	struct options o;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		memset(&o, 0, sizeof(o));
		memset(&err, 0, sizeof(err));
		assert_int_equal(options_parse(&o, refused[i].verb, refused[i].text, &err), -EINVAL);
		if (!strstr(err.text, refused[i].sentence))
			fail_msg("%s: %s", refused[i].text, err.text);
		options_fini(&o);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_all_of_them),
		cmocka_unit_test(test_paths_become_absolute),
		cmocka_unit_test(test_settle_of_zero_never_waits),
		cmocka_unit_test(test_handed_on_and_ignored),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
