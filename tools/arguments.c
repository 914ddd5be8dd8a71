/* See arguments.h: parsing and opening, nothing of what is printed. */
#include "arguments.h"

#include <getopt.h>
#include <string.h>
#include <unistd.h>

#include "fs.h"
#include "once.h"

int arguments_flag(struct arguments *a, const struct command *self, int code)
{
	struct unshard_error err = { 0 };

	if (code == 'h')
		return command_help(self);
	if (code == '?')
		return command_usage(self);
	if (code == 'j')
		a->json = true;
	if ((code == 'o' && options_parse(&a->options, self->options, optarg, &err) < 0) ||
	    (code == 'S' && options_store(&a->options, optarg, &err) < 0))
		return command_fail("%s", err.text);
	return -1;
}

int arguments_parse(struct arguments *a, const struct command *self, int argc, char **argv)
{
	int code, status;

	*a = (struct arguments){ .log = { .fd = -1 } };
	while ((code = flags_next(self->flags, argc, argv)) != -1) {
		if (code == 't')
			a->tensors = optarg ? optarg : "*";
		if (code == 'H')
			a->html = optarg;
		if (code == 'G')
			a->svg = optarg;
		if (code == 'W')
			a->worlds = optarg;
		a->every |= code == 'a';
		a->values |= code == 'V';
		status = arguments_flag(a, self, code);
		if (status >= 0)
			return status;
	}
	if (argc - optind < 1 || (argc - optind > 1 && !self->several))
		return command_operands(self, argc - optind, argv + optind);
	arguments_take(a, argc, argv);
	return -1;
}

void arguments_take(struct arguments *a, int argc, char **argv)
{
	a->all = argv + optind;
	a->n_all = (size_t)(argc - optind);
	a->argument = a->all[0];
}

void arguments_fini(struct arguments *a)
{
	log_close(&a->log);
	options_fini(&a->options);
}

/* A metadata store that cannot be used is a property of the machine: the library logs it in every session. */
static void store_note(struct arguments *a, unshard *u)
{
	const struct unshard_calls calls = { UNSHARD_CALLS_INIT };

	if (a->options.library.no_store || a->options.debug)
		return;
	a->log.holds = true;
	unshard_meta_list(u, "", &calls, NULL);
	a->log.holds = false;
	if (*a->log.held && once(a->log.held))
		log_line(&a->log, UNSHARD_LOG_WARNING, a->log.held);
	*a->log.held = '\0';
}

int arguments_open(struct arguments *a, const char *source, unshard **out)
{
	struct unshard_error err = { 0 };
	struct unshard_options *library = &a->options.library;

	if (a->log.fd < 0 && log_open(&a->log, a->options.log, true, &err) < 0)
		return command_fail("%s", err.text);
	library->size = sizeof(*library);
	library->log = log_line;
	library->log_ctx = &a->log;
	library->log_level = a->options.debug ? UNSHARD_LOG_DEBUG : a->quiet ? UNSHARD_LOG_ERROR : UNSHARD_LOG_WARNING;
	library->trim_memory = true;
	if (unshard_open(source, library, out, &err) < 0)
		return command_fail("%s", err.text);
	store_note(a, *out);
	return -1;
}

int arguments_open_above(struct arguments *a, char *path, unshard **out, const char **below)
{
	char *slash = strrchr(path, '/');

	*below = slash + 1;
	if (slash == path || !slash[1]) {
		*below = "";
	} else {
		*slash = '\0';
		if (access(path, R_OK | X_OK) < 0) {
			*slash = '/';
			*below = "";
		}
	}
	return arguments_open(a, path, out);
}

int arguments_write_only(const unshard *u, const char *directory)
{
	struct unshard_error err = { 0 };
	int code = fs_confine_writing(u, directory, &err);

	if (code < 0)
		command_fail("%s", err.text);
	return code;
}
