/* cJSON leaves out what it has no memory for, and reports that only by what its functions return: these check it. */
#include "json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"

static cJSON *made(cJSON *value)
{
	if (!value)
		command_no_memory();
	return value;
}

cJSON *json_object(void)
{
	return made(cJSON_CreateObject());
}

cJSON *json_array(void)
{
	return made(cJSON_CreateArray());
}

/* How many bytes at s are one character of UTF-8; 0 = they are none. */
static size_t character(const unsigned char *s)
{
	static const unsigned char least[] = { 0, 0, 0xc2, 0xe0, 0xf0 };
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4, i;

	if (n == 1)
		return 1;
	if (s[0] < least[n] || s[0] > 0xf4)
		return 0;
	for (i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	/* longer than need be, a surrogate, or above U+10FFFF */
	if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) || (s[0] == 0xf0 && s[1] < 0x90) ||
	    (s[0] == 0xf4 && s[1] > 0x8f))
		return 0;
	return n;
}

cJSON *json_string(const char *text)
{
	static const char unknown[] = "\xef\xbf\xbd";
	const unsigned char *s = (const unsigned char *)text;
	char *valid, *to;
	cJSON *string;
	size_t n;

	if (!text)
		return made(cJSON_CreateNull());
	to = valid = malloc(3 * strlen(text) + 1);
	if (!valid)
		return made(NULL);
	for (; *s; s += n ? n : 1) {
		n = character(s);
		memcpy(to, n ? (const char *)s : unknown, n ? n : 3);
		to += n ? n : 3;
	}
	*to = '\0';
	string = cJSON_CreateString(valid);
	free(valid);
	return made(string);
}

/* Was it taken? */
static void added_or_fail(bool added, cJSON *value)
{
	if (added)
		return;
	command_no_memory();
	cJSON_Delete(value);
}

void json_add_value(cJSON *object, const char *key, cJSON *value)
{
	added_or_fail(cJSON_AddItemToObject(object, key, value), value);
}

void json_append(cJSON *array, cJSON *value)
{
	added_or_fail(cJSON_AddItemToArray(array, value), value);
}

void json_add(cJSON *object, const char *key, const char *text)
{
	json_add_value(object, key, json_string(text));
}

void json_add_number(cJSON *object, const char *key, double number)
{
	json_add_value(object, key, made(cJSON_CreateNumber(number)));
}

void json_add_exact(cJSON *object, const char *key, double number)
{
	char text[32];
	int digits = 15;

	do
		snprintf(text, sizeof(text), "%.*g", digits, number);
	while (digits++ < 17 && !(strtod(text, NULL) >= number && strtod(text, NULL) <= number));
	json_add_value(object, key, made(isfinite(number) ? cJSON_CreateRaw(text) : cJSON_CreateNull()));
}

void json_add_null(cJSON *object, const char *key)
{
	json_add_value(object, key, made(cJSON_CreateNull()));
}

void json_add_shape(cJSON *object, const char *key, const struct unshard_tensor *tensor)
{
	cJSON *list = tensor ? json_array() : NULL;
	uint32_t i;

	for (i = 0; tensor && i < tensor->n_dims; i++)
		json_append(list, cJSON_CreateNumber((double)tensor->shape[i]));
	if (tensor)
		json_add_value(object, key, list);
	else
		json_add_null(object, key);
}

void json_append_change(cJSON *array, const struct unshard_change *change, const char *path)
{
	cJSON *o = json_object();

	json_add(o, "path", path);
	json_add(o, "kind", unshard_change_name(change->kind));
	json_add(o, "text", change->text);
	json_append(array, o);
}

void json_print(const cJSON *value)
{
	char *text = value && !command_lacks_memory() ? cJSON_Print(value) : NULL;

	if (text)
		puts(text);
	else
		command_no_memory();
	cJSON_free(text);
}
