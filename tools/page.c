/* The page's data, and how it gets between the page's two parts. */
#include "page.h"

#include <string.h>

#include "command.h"
#include "json.h"
#include "module_kinds.h"
#include "whole_file.h"

/* In a script element "</script" and "<!--" would end the data or hide its end. Only strings of JSON have a '<'. */
static void json_put(FILE *to, const char *json)
{
	size_t n;

	for (; *json; json += n + (json[n] == '<')) {
		n = strcspn(json, "<");
		fwrite(json, 1, n, to);
		if (json[n])
			fputs("\\u003c", to);
	}
}

static void value_put(FILE *to, cJSON *value)
{
	char *printed = value ? cJSON_PrintUnformatted(value) : NULL;

	if (!printed)
		command_no_memory();
	json_put(to, printed ? printed : "null");
	cJSON_free(printed);
	cJSON_Delete(value);
}

static void page_put(FILE *to, const void *ctx)
{
	const struct page *p = ctx;
	const struct page_part *part;

	fwrite(page_head, 1, page_head_len, to);
	fputs("{\"version\":", to);
	value_put(to, json_string(unshard_version()));
	fputs(",\"kinds\":", to);
	value_put(to, module_kinds_json());
	for (part = p->part; part->key; part++) {
		fprintf(to, ",\"%s\":", part->key);
		if (part->json)
			json_put(to, part->json);
		else
			value_put(to, json_string(part->text));
	}
	putc('}', to);
	fwrite(page_tail, 1, page_tail_len, to);
}

int page_write(const struct page *page, const char *file)
{
	return whole_file_write(&(struct whole_file){ file, page->sources, page_put, page });
}
