/* Fixtures of golden/zero: opening one (or a changed copy of one) and comparing every tensor of the
 * catalog, byte by byte, with what the live engine said (golden/zero/make.py). */
#ifndef TESTS_ZERO_GOLDEN_H
#define TESTS_ZERO_GOLDEN_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/engine.h"
#include "formats/format.h"
#include "model/cover.h"
#include "said.h"
#include "shell.h"

struct fixture {
	char dir[32]; /* a copy of golden/zero/CASE, to be changed */
	struct uns_root *root;
	struct uns_arena arena;
	struct uns_catalog *cat;
	struct uns_engine *engine;
	struct uns_backing *backing;
};

static inline void fixture_init(struct fixture *f, const char *golden)
{
	char command[512];

	*f = (struct fixture){ .dir = "/tmp/uns_zero_XXXXXX" };
	assert_non_null(mkdtemp(f->dir));
	snprintf(command, sizeof(command), "cp -r %s/zero/%s/. . && chmod -R u+w .", UNSHARD_GOLDEN, golden);
	shell(f->dir, command);
	assert_int_equal(uns_root_open(f->dir, NULL, &f->root, NULL), 0);
}

static inline struct uns_directory fixture_dir(struct fixture *f, const char *path, struct uns_listing *list)
{
	assert_int_equal(uns_root_list(f->root, path, &f->arena, list, NULL), 0);
	return (struct uns_directory){ .root = f->root, .path = path, .list = list };
}

static inline void fixture_open(struct fixture *f, const struct uns_format *format, const char *path)
{
	const struct uns_engine_options options = { 0 };
	struct uns_listing list = { 0 };
	struct uns_directory dir = fixture_dir(f, path, &list);
	struct uns_err err = { 0 };

	assert_int_equal(uns_catalog_new(*path ? path : "RUN", &f->cat, NULL), 0);
	if (format->open(&dir, NULL, f->cat, &err) < 0 || uns_engine_new(&options, &f->engine, &err) < 0 ||
	    uns_backing_new(f->engine, f->cat, &f->backing, &err) < 0)
		fail_msg("%s", err.text);
	assert_string_equal(f->cat->summary.format, format->name);
}

static inline void fixture_fini(struct fixture *f)
{
	if (f->backing)
		uns_backing_free(f->backing);
	if (f->engine)
		uns_engine_free(f->engine);
	uns_catalog_free(f->cat);
	uns_root_close(f->root);
	uns_arena_fini(&f->arena);
	shell(f->dir, "rm -r ../$(basename $PWD)");
}

/* A tensor's bytes as a view reads them. */
static inline uint8_t *read_tensor(struct fixture *f, const struct uns_tensor *t, size_t *size)
{
	struct uns_layout_builder b = { .arena = &f->arena };
	struct uns_err err = { 0 };
	struct uns_layout layout;
	uint8_t *bytes;

	*size = uns_shape_elems(&t->shape) * uns_dtype_size(t->dtype);
	bytes = calloc(1, *size + 1);
	assert_non_null(bytes);
	uns_layout_tensor(&b, t, 0, uns_shape_elems(&t->shape), t->dtype);
	if (uns_cover_check(f->cat, t, &err) < 0 || uns_layout_build(&b, f->cat, &layout, &err) < 0 ||
	    uns_read(f->backing, &layout, bytes, *size, 0, &err) != (ssize_t)*size)
		fail_msg("%s: %s", t->key, err.text);
	return bytes;
}

struct expected {
	char role[32], name[64], dtype[32], dims[64];
	int group;
	char bytes[4096];
};

static inline void check_bytes(struct fixture *f, const struct uns_tensor *t, const struct expected *want)
{
	UNS_CLEANUP(uns_free_p) uint8_t *bytes = NULL;
	char hex[4096] = "", dims[64] = "";
	size_t size, i;
	uint32_t d;

	for (d = 0; d < t->shape.n; d++)
		snprintf(dims + strlen(dims), sizeof(dims) - strlen(dims), "%s%llu", d ? "," : "",
			 (unsigned long long)t->shape.dim[d]);
	assert_string_equal(t->shape.n ? dims : "-", want->dims);
	assert_string_equal(uns_dtype_info(t->dtype)->torch, want->dtype);
	bytes = read_tensor(f, t, &size);
	assert_true(size * 2 < sizeof(hex));
	for (i = 0; i < size; i++)
		snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	if (strcmp(hex, want->bytes) != 0)
		fail_msg("%s: %s, expected %s", t->key, hex, want->bytes);
}

static inline enum uns_role role_named(const char *text)
{
	int role;

	for (role = UNS_ROLE_WEIGHT; role <= UNS_ROLE_OTHER; role++)
		if (strcmp(uns_role_text((enum uns_role)role), text) == 0)
			return (enum uns_role)role;
	fail_msg("no role %s", text);
	return UNS_ROLE_OTHER;
}

/* Compare what CASE/expected.txt lists of these roles (a bit each) with the catalog, which must hold
 * nothing else of them but other names of tied weights. Returns how many tensors were compared. */
static inline size_t compare_expected(struct fixture *f, unsigned roles)
{
	UNS_CLEANUP(uns_free_p) char *path = NULL;
	const struct uns_tensor *t;
	struct expected want;
	size_t n = 0, listed = 0, i;
	FILE *file;

	assert_true(asprintf(&path, "%s/expected.txt", f->dir) > 0);
	file = fopen(path, "r");
	assert_non_null(file);
	while (fscanf(file, "%31s %63s %31s %63s %d %4095s", want.role, want.name, want.dtype, want.dims, &want.group,
		      want.bytes) == 6) {
		if (!(roles & 1U << role_named(want.role)))
			continue;
		t = uns_catalog_find(f->cat, role_named(want.role), want.name);
		if (!t)
			fail_msg("%s %s is missing", want.role, want.name);
		if (f->cat->n_groups && t->group != want.group)
			fail_msg("%s is in group %d, expected %d", t->key, t->group, want.group);
		check_bytes(f, t, &want);
		n++;
	}
	fclose(file);
	for (i = 0; i < f->cat->n_tensors; i++) {
		t = &f->cat->tensors[i];
		listed += (roles & 1U << t->role) && !(t->role == UNS_ROLE_MASTER && t->alias_of != UNS_NONE);
	}
	assert_int_equal(listed, n);
	return n;
}

/* The problems' sentences with another scope than NOTE, one a line. */
static inline const char *serious(struct fixture *f)
{
	const char *text = "";
	size_t i;

	for (i = 0; i < f->cat->n_findings; i++)
		if (f->cat->findings[i].scope != UNS_SCOPE_NOTE)
			text = uns_arena_printf(&f->arena, "%s%d: %s\n", text, f->cat->findings[i].scope,
						said(&f->cat->findings[i]));
	return text;
}

#define ALL_ROLES   0xFFU
#define MODEL_ROLES (1U << UNS_ROLE_WEIGHT | 1U << UNS_ROLE_BUFFER)
#define STATE_ROLES (1U << UNS_ROLE_MASTER | 1U << UNS_ROLE_EXP_AVG | 1U << UNS_ROLE_EXP_AVG_SQ | 1U << UNS_ROLE_STEP)

#endif
