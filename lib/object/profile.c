#include "object/profile.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { MOST_BYTES = 1 << 20 };

/* -- the text -- */

static struct uns_span trimmed(const uint8_t *from, const uint8_t *to)
{
	while (from < to && (*from == ' ' || *from == '\t'))
		from++;
	while (to > from && (to[-1] == ' ' || to[-1] == '\t' || to[-1] == '\r'))
		to--;
	return (struct uns_span){ from, to };
}

static bool is(struct uns_span s, const char *text)
{
	return uns_span_left(&s) == strlen(text) && memcmp(s.p, text, strlen(text)) == 0;
}

/* The line is "KEY = VALUE": is that the key? One that is indented belongs to the key `above` it. */
static bool is_key(struct uns_span line, struct uns_span above, bool indented, const char *key, struct uns_span *value)
{
	const uint8_t *equals = memchr(line.p, '=', uns_span_left(&line));
	const char *dot = strchr(key, '.');

	if (!equals || indented != !!dot)
		return false;
	*value = trimmed(equals + 1, line.end);
	if (!dot)
		return is(trimmed(line.p, equals), key);
	return uns_span_left(&above) == (size_t)(dot - key) && memcmp(above.p, key, (size_t)(dot - key)) == 0 &&
	       is(trimmed(line.p, equals), dot + 1);
}

/* The line is "[...]": is it the section? */
static bool is_section(struct uns_span line, const char *section, bool with_word)
{
	static const char word[] = "profile";
	const uint8_t *end = memchr(line.p, ']', uns_span_left(&line));
	struct uns_span name = trimmed(line.p + 1, end ? end : line.end);

	if (with_word && uns_span_left(&name) > strlen(word) && memcmp(name.p, word, strlen(word)) == 0 &&
	    (name.p[strlen(word)] == ' ' || name.p[strlen(word)] == '\t'))
		return is(trimmed(name.p + strlen(word), name.end), section);
	return is(name, section) && (!with_word || strcmp(section, "default") == 0);
}

static const char *text_of(struct uns_span value, struct uns_arena *arena)
{
	const size_t n = uns_span_left(&value);

	return memchr(value.p, '\0', n) ? NULL : uns_arena_strn(arena, (const char *)value.p, n);
}

const char *uns_profile_find(struct uns_span file, const char *section, bool with_word, const char *key,
			     struct uns_arena *arena)
{
	const uint8_t *end, *equals;
	struct uns_span line, value, above = { 0 };
	bool inside = false;

	for (; file.p < file.end; file.p = end < file.end ? end + 1 : end) {
		end = memchr(file.p, '\n', uns_span_left(&file));
		end = end ? end : file.end;
		line = trimmed(file.p, end);
		if (line.p == line.end || *line.p == '#' || *line.p == ';')
			continue;
		if (*line.p == '[') {
			inside = is_section(line, section, with_word);
			continue;
		}
		if (inside && is_key(line, above, line.p != file.p, key, &value))
			return text_of(value, arena);
		equals = memchr(line.p, '=', uns_span_left(&line));
		if (line.p == file.p)
			above = equals ? trimmed(line.p, equals) : line;
	}
	return NULL;
}

/* -- the files -- */

bool uns_profile_read(const char *path, struct uns_arena *arena, struct uns_span *out)
{
	UNS_CLEANUP(uns_close_p) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	uint8_t *bytes = fd < 0 ? NULL : uns_arena_alloc(arena, MOST_BYTES, 1);
	size_t len = 0;
	ssize_t n = 1;

	while (bytes && len < MOST_BYTES && n > 0) {
		n = read(fd, bytes + len, MOST_BYTES - len);
		len += n > 0 ? (size_t)n : 0;
	}
	*out = uns_span_of(bytes, len);
	return bytes && n == 0;
}

static const char *file_path(const char *variable, const char *name, struct uns_arena *arena)
{
	const char *given = getenv(variable), *home = getenv("HOME");

	if (given && strncmp(given, "~/", 2) != 0)
		return given;
	if (!home)
		return NULL;
	return given ? uns_arena_printf(arena, "%s/%s", home, given + 2)
		     : uns_arena_printf(arena, "%s/.aws/%s", home, name);
}

const char *uns_profile_name(void)
{
	const char *name = getenv("AWS_PROFILE");

	if (!name || !*name)
		name = getenv("AWS_DEFAULT_PROFILE");
	return name && *name ? name : "default";
}

const char *uns_profile_value(const char *key, struct uns_arena *arena)
{
	const char *path = file_path("AWS_SHARED_CREDENTIALS_FILE", "credentials", arena), *value = NULL;
	struct uns_span file;

	if (path && uns_profile_read(path, arena, &file))
		value = uns_profile_find(file, uns_profile_name(), false, key, arena);
	path = file_path("AWS_CONFIG_FILE", "config", arena);
	if (!value && path && uns_profile_read(path, arena, &file))
		value = uns_profile_find(file, uns_profile_name(), true, key, arena);
	return value;
}
