/* The page's data, and how it becomes a file. */
#include "page.h"

#include <errno.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "command.h"
#include "json.h"

/* -- the data -- */

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

static void string_put(FILE *to, const char *key, const char *text)
{
	cJSON *value = json_string(text);
	char *printed = value ? cJSON_PrintUnformatted(value) : NULL;

	if (!printed)
		command_no_memory();
	fprintf(to, "\"%s\":", key);
	json_put(to, printed ? printed : "null");
	cJSON_free(printed);
	cJSON_Delete(value);
}

/* The lines to write have the path of the mount that shows the checkpoint, as those that `show` prints. */
static char *info_with_lines(const struct page *p)
{
	cJSON *info = cJSON_Parse(p->info), *view, *usage;
	char *line, *text;

	cJSON_ArrayForEach (view, cJSON_GetObjectItemCaseSensitive(info, "views")) {
		usage = cJSON_GetObjectItemCaseSensitive(view, "usage");
		if (!cJSON_GetStringValue(usage))
			continue;
		line = show_line(p->at, cJSON_GetStringValue(usage));
		if (!line || !cJSON_ReplaceItemInObjectCaseSensitive(view, "usage", json_string(line)))
			command_no_memory();
		free(line);
	}
	text = info ? cJSON_PrintUnformatted(info) : NULL;
	cJSON_Delete(info);
	return text;
}

static void checkpoint_put(FILE *to, const struct page *p)
{
	char *info = info_with_lines(p);

	if (!info)
		command_no_memory();
	fputs(",\"info\":", to);
	json_put(to, info ? info : "null");
	fputs(",\"map\":", to);
	json_put(to, p->map);
	cJSON_free(info);
}

static void page_put(FILE *to, const struct page *p)
{
	fwrite(page_head, 1, page_head_len, to);
	putc('{', to);
	string_put(to, "version", unshard_version());
	putc(',', to);
	string_put(to, "path", p->at->typed);
	putc(',', to);
	string_put(to, "training", p->training);
	if (p->run) {
		fputs(",\"run\":", to);
		json_put(to, p->run);
	} else {
		checkpoint_put(to, p);
	}
	putc('}', to);
	fwrite(page_tail, 1, page_tail_len, to);
}

/* -- the file -- */

/* SOURCE is never written to. */
static int refuse_in_source(const struct page *p, const char *file)
{
	const size_t n = strlen(p->at->real);
	char *copy = strdup(file), *directory = copy ? realpath(dirname(copy), NULL) : NULL;
	int status = -1;

	if (!copy)
		status = command_fail("out of memory");
	else if (!directory)
		status = command_fail("%s: %s", file, strerror(errno));
	else if (!strncmp(directory, p->at->real, n) && (!directory[n] || directory[n] == '/'))
		status = command_fail("%s is in %s itself: name a file elsewhere", file, p->at->typed);
	free(directory);
	free(copy);
	return status;
}

static int written(const struct page *p, FILE *to, const char *name)
{
	bool failed;

	page_put(to, p);
	failed = ferror(to) || fflush(to) == EOF;
	if (command_lacks_memory())
		return command_fail("out of memory");
	return failed ? command_fail("%s: %s", name, strerror(errno)) : EXIT_DONE;
}

/* Beside `file`, and renamed to it: no reader sees half a page, and an older page stays if this fails. */
static int file_write(const struct page *p, const char *file)
{
	const mode_t mask = umask(0);
	char *beside;
	FILE *to = NULL;
	int fd, status;

	umask(mask);
	if (asprintf(&beside, "%s.XXXXXX", file) < 0)
		return command_fail("out of memory");
	fd = mkstemp(beside);
	if (fd >= 0)
		to = fdopen(fd, "w");
	status = to ? written(p, to, file) : command_fail("%s: %s", file, strerror(errno));
	if (to &&
	    (fchmod(fd, 0666 & ~mask) < 0 || fclose(to) == EOF || (status == EXIT_DONE && rename(beside, file) < 0)))
		status = command_fail("%s: %s", file, strerror(errno));
	if (fd >= 0 && status != EXIT_DONE)
		unlink(beside);
	free(beside);
	return status;
}

int page_write(const struct page *page, const char *file)
{
	int status;

	if (!strcmp(file, "-"))
		return written(page, stdout, "standard output");
	status = refuse_in_source(page, file);
	return status < 0 ? file_write(page, file) : status;
}
