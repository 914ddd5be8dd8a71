/* What an object store answers in XML: pages of a listing (ListObjectsV2) and errors. Parsers of bytes; any thread. */
#ifndef UNS_OBJECT_ANSWERS_H
#define UNS_OBJECT_ANSWERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/span.h"

struct uns_object {
	const char *key;  /* of a common prefix: with the slash at its end */
	const char *etag; /* as it is answered, in quotes; "" = the store has none */
	uint64_t size;
	int64_t mtime_ns; /* LastModified; of whole seconds on most stores */
	bool is_prefix;
};

struct uns_object_list {
	struct uns_object *v; /* in the order of the answers; texts in the arena */
	size_t n, cap;
	const char *next; /* token of the page that follows; NULL = that was the last */
};

/* Adds a page's objects to the list. -EBADMSG: it is no such page, with what is wrong. */
int uns_object_list_parse(struct uns_span xml, struct uns_arena *arena, struct uns_object_list *list,
			  struct uns_err *err);

struct uns_object_error {
	char code[64];    /* "NoSuchKey"; "" = the answer has none */
	char region[32];  /* where the bucket is, if the error has it */
};

/* Of an answer that may be anything, also no XML. */
void uns_object_error_parse(struct uns_span xml, struct uns_object_error *out);

/* The value of the first element of that name, without its entities resolved; for short answers. false = none. */
bool uns_answer_value(struct uns_span xml, const char *name, char *out, size_t size);

#endif
