/* Included in front of every file that tests/analyse/run looks at: what an analyzer of one file cannot see of others.
 * These functions always return a negative code. Without it, whatever a failed call leaves unset seems to be used. */
#ifndef TESTS_ANALYSE_FAILING_H
#define TESTS_ANALYSE_FAILING_H

#include "base/error.h"
#include "base/reader.h"
#include "model/catalog.h"

#define uns_fail(...)         (uns_fail(__VA_ARGS__), -1)
#define uns_oom(...)          (uns_oom(__VA_ARGS__), -1)
#define uns_fail_as(...)      (uns_fail_as(__VA_ARGS__), -1)
#define uns_fail_in(...)      (uns_fail_in(__VA_ARGS__), -1)
#define uns_fail_in_file(...) (uns_fail_in_file(__VA_ARGS__), -1)
#define uns_fail_about(...)   (uns_fail_about(__VA_ARGS__), -1)
#define uns_fail_with(...)    (uns_fail_with(__VA_ARGS__), -1)
#define uns_catalog_fail(...) (uns_catalog_fail(__VA_ARGS__), -1)

/* What is read is set. */
#define uns_reader_pread(r, buf, len, off, err) \
	(uns_reader_pread(r, buf, len, off, err) < 0 ? -1 : (memset(buf, 0, len), 0))

#endif
