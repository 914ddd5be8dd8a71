/* See yaml.h. Built from libyaml's events, not from its documents: an alias is then an event that
 * can be refused before anything is made of it, and nesting is a counter instead of a call stack.
 */
#include "wire/yaml.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/cleanup.h"
#include "base/number.h"

struct builder {
	cJSON *root;
	cJSON *open[UNS_YAML_MAX_DEPTH]; /* borrowed: all hang below root */
	char *key[UNS_YAML_MAX_DEPTH];   /* of an open mapping: a key that was read, and whose value comes next */
	size_t depth, n_nodes, n_documents;
	bool ended;
};

static void builder_fini(struct builder *b)
{
	size_t i;

	for (i = 0; i < UNS_YAML_MAX_DEPTH; i++)
		free(b->key[i]);
	cJSON_Delete(b->root);
}

static size_t line_of(const yaml_event_t *e)
{
	return e->start_mark.line + 1;
}

/* -- what an unquoted word means -- */

static bool is_one_of(const char *const *words, const char *s)
{
	for (; *words; words++)
		if (strcmp(*words, s) == 0)
			return true;
	return false;
}

/* Decimal numbers only: the trees are read for stages, steps and rates. */
static cJSON *number_or_text(const char *s)
{
	double value;

	return uns_number_parse(uns_span_of(s, strlen(s)), &value) ? cJSON_CreateNumber(value) : cJSON_CreateString(s);
}

static cJSON *plain_value(const char *s)
{
	static const char *const nulls[] = { "", "~", "null", "Null", "NULL", NULL };
	static const char *const yes[] = { "true", "True", "TRUE", "yes", "Yes", "YES", "on", "On", "ON", NULL };
	static const char *const no[] = { "false", "False", "FALSE", "no", "No", "NO", "off", "Off", "OFF", NULL };

	if (is_one_of(nulls, s))
		return cJSON_CreateNull();
	if (is_one_of(yes, s) || is_one_of(no, s))
		return cJSON_CreateBool(is_one_of(yes, s));
	return number_or_text(s);
}

/* -- adding nodes to their parent -- */

static bool wants_key(const struct builder *b)
{
	return b->depth && cJSON_IsObject(b->open[b->depth - 1]) && !b->key[b->depth - 1];
}

static int take_key(struct builder *b, const char *text, size_t line, struct uns_err *err)
{
	if (strcmp(text, "<<") == 0)
		return uns_fail(err, -ENOTSUP, "line %zu: YAML merge keys (<<) are not read", line);
	b->key[b->depth - 1] = strdup(text);
	return b->key[b->depth - 1] ? 0 : uns_oom(err);
}

/* Takes `item`. Of equal keys the last counts, as for Python. */
static int item_place(struct builder *b, cJSON *item, struct uns_err *err)
{
	cJSON *parent = b->depth ? b->open[b->depth - 1] : NULL;
	bool done;

	UNS_TRY_ALLOC(item, err);
	if (!parent) {
		b->root = item;
		return 0;
	}
	if (cJSON_IsArray(parent)) {
		done = cJSON_AddItemToArray(parent, item);
	} else {
		cJSON_DeleteItemFromObjectCaseSensitive(parent, b->key[b->depth - 1]);
		done = cJSON_AddItemToObject(parent, b->key[b->depth - 1], item);
		free(b->key[b->depth - 1]);
		b->key[b->depth - 1] = NULL;
	}
	if (!done)
		cJSON_Delete(item);
	return done ? 0 : uns_oom(err);
}

/* Only the tags of YAML's own types are allowed, as in yaml.safe_load; none of a language's objects. */
static int check_tag(const yaml_char_t *tag, size_t line, struct uns_err *err)
{
	static const char own[] = "tag:yaml.org,2002:", python[] = "tag:yaml.org,2002:python";
	const char *s = (const char *)tag;

	if (!s || (strncmp(s, own, strlen(own)) == 0 && strncmp(s, python, strlen(python)) != 0))
		return 0;
	return uns_fail(err, -ENOTSUP, "line %zu: the YAML tag %.80s is not read", line, s);
}

static int add_scalar(struct builder *b, const yaml_event_t *e, struct uns_err *err)
{
	const char *text = (const char *)e->data.scalar.value;
	const char *tag = (const char *)e->data.scalar.tag;
	bool plain = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;

	if (strlen(text) != e->data.scalar.length)
		return uns_fail(err, -EBADMSG, "line %zu: a value holds a NUL", line_of(e));
	UNS_TRY(check_tag(e->data.scalar.tag, line_of(e), err));
	if (wants_key(b))
		return take_key(b, text, line_of(e), err);
	if (tag && strcmp(tag, YAML_STR_TAG) == 0)
		plain = false;
	return item_place(b, plain ? plain_value(text) : cJSON_CreateString(text), err);
}

static int open_collection(struct builder *b, const yaml_event_t *e, const yaml_char_t *tag, cJSON *item,
			   struct uns_err *err)
{
	int code = check_tag(tag, line_of(e), err);

	if (code == 0 && wants_key(b))
		code = uns_fail(err, -ENOTSUP, "line %zu: a YAML key is not a word", line_of(e));
	if (code == 0 && b->depth == UNS_YAML_MAX_DEPTH)
		code = uns_fail(err, -ENOTSUP, "line %zu: YAML is nested deeper than %d", line_of(e),
				UNS_YAML_MAX_DEPTH);
	if (code < 0) {
		cJSON_Delete(item);
		return code;
	}
	UNS_TRY(item_place(b, item, err));
	b->open[b->depth++] = item;
	return 0;
}

static int add_event(struct builder *b, const yaml_event_t *e, struct uns_err *err)
{
	if (++b->n_nodes > UNS_YAML_MAX_NODES)
		return uns_fail(err, -ENOTSUP, "line %zu: YAML has more than %d nodes", line_of(e), UNS_YAML_MAX_NODES);
	switch (e->type) {
	case YAML_SCALAR_EVENT:
		return add_scalar(b, e, err);
	case YAML_SEQUENCE_START_EVENT:
		return open_collection(b, e, e->data.sequence_start.tag, cJSON_CreateArray(), err);
	case YAML_MAPPING_START_EVENT:
		return open_collection(b, e, e->data.mapping_start.tag, cJSON_CreateObject(), err);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		b->depth--;
		return 0;
	case YAML_ALIAS_EVENT:
		return uns_fail(err, -ENOTSUP, "line %zu: YAML aliases (*name) are not read", line_of(e));
	case YAML_DOCUMENT_START_EVENT:
		if (b->n_documents++)
			return uns_fail(err, -ENOTSUP, "line %zu: a second YAML document; expected one", line_of(e));
		return 0;
	case YAML_STREAM_END_EVENT:
		b->ended = true;
		return 0;
	default:
		return 0;
	}
}

static int next_event(struct builder *b, yaml_parser_t *parser, struct uns_err *err)
{
	yaml_event_t event;
	int code;

	if (!yaml_parser_parse(parser, &event)) {
		if (parser->error == YAML_MEMORY_ERROR)
			return uns_oom(err);
		return uns_fail(err, -EBADMSG, "line %zu: YAML is damaged: %s", parser->problem_mark.line + 1,
				parser->problem ? parser->problem : "not readable");
	}
	code = add_event(b, &event, err);
	yaml_event_delete(&event);
	return code;
}

int uns_yaml_parse(struct uns_span in, cJSON **out, struct uns_err *err)
{
	UNS_CLEANUP(builder_fini) struct builder b = { 0 };
	UNS_CLEANUP(yaml_parser_delete) yaml_parser_t parser;

	if (!yaml_parser_initialize(&parser)) {
		memset(&parser, 0, sizeof(parser));
		return uns_oom(err);
	}
	yaml_parser_set_input_string(&parser, in.p, uns_span_left(&in));
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	while (!b.ended)
		UNS_TRY(next_event(&b, &parser, err));
	if (!b.root)
		UNS_TRY(item_place(&b, cJSON_CreateNull(), err));
	*out = UNS_TAKE(b.root);
	return 0;
}
