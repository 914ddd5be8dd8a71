/* unshard_check_config: reads config files and those that they name, looks at where output would
 * go, and puts the rules of setting_rules.c to all of their settings together. */
#include "session/session.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "check/setting_rules.h"
#include "api/caller.h"
#include "check/output_dir.h"
#include "wire/json.h"
#include "wire/yaml.h"

enum { MAX_CONFIG_BYTES = 1 << 20 };

struct config_check {
	struct uns_arena arena;
	struct uns_settings settings;
	const char *dir; /* of the file being read: what it names may lie beside it */
	struct caller caller;
	struct unshard_check_counts counts;
};

/* -- files -- */

static int read_whole(struct config_check *c, const char *file, struct uns_span *out, struct uns_err *err)
{
	const struct uns_root_options trusted = { .trusted = true };
	const char *slash = strrchr(file, '/'), *dir = ".";
	struct uns_root *root;
	int code;

	if (slash)
		dir = slash == file ? "/" : uns_arena_strn(&c->arena, file, (size_t)(slash - file));
	UNS_TRY_ALLOC(dir, err);
	c->dir = dir;
	UNS_TRY(uns_root_open(dir, &trusted, &root, err));
	code = uns_root_read_file(root, slash ? slash + 1 : file, MAX_CONFIG_BYTES, &c->arena, out, NULL, err);
	uns_root_close(root);
	return code;
}

/* JSON is nearly YAML, so the first letter decides how a file is read. */
static int config_parse(const char *file, struct uns_span text, cJSON **out, struct uns_err *err)
{
	const uint8_t *p = text.p;
	bool json;

	while (p < text.end && strchr(" \t\r\n", *p))
		p++;
	if (p == text.end)
		return uns_fail(err, -EINVAL, "%s is empty", file);
	if (uns_span_left(&text) >= 4 && memcmp(text.p, "PK\3\4", 4) == 0) /* training_args.bin */
		return uns_fail(
			err, -ENOTSUP,
			"%s is a file of torch.save: expected JSON or YAML. Name the config that the training "
			"starts from; `unshard meta import CHECKPOINT %s` reads what a training_args.bin records",
			file, file);
	json = *p == '{' || *p == '[';
	if (json && (uns_str_ends(file, ".yaml") || uns_str_ends(file, ".yml")))
		json = false;
	if ((json ? uns_json_parse(text, out, err) : uns_yaml_parse(text, out, err)) < 0)
		return uns_fail_in(err, "%s", file);
	return 0;
}

static int add_file(struct config_check *c, const char *file, const char **kind, struct uns_err *err)
{
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	enum uns_config_kind is;
	struct uns_span text;

	UNS_TRY(read_whole(c, file, &text, err));
	UNS_TRY(config_parse(file, text, &json, err));
	is = uns_config_kind_of(json);
	if (is == UNS_CONFIG_UNKNOWN)
		return uns_fail(err, -ENOTSUP,
				"%s is not a config that unshard knows: expected TrainingArguments (output_dir, "
				"save_steps, fsdp, ...), Accelerate (distributed_type, fsdp_config, deepspeed_config), "
				"DeepSpeed (zero_optimization, ...) or LightningCLI (trainer)",
				file);
	if (kind)
		*kind = uns_config_kind_text(is);
	return uns_settings_add(&c->settings, is, json, &c->arena, err);
}

/* -- files that a file names -- */

/* Rules have their own table, setting_rules.c: each is one check. */
static struct unshard_finding finding_of(const char *file, const char *rule, enum unshard_severity severity)
{
	return (struct unshard_finding){ .size = sizeof(struct unshard_finding),
					 .path = file,
					 .check = rule,
					 .id = rule,
					 .severity = severity,
					 .scope = UNSHARD_SCOPE_NOTHING,
					 .rank = -1 };
}

static int finding_report(struct config_check *c, const struct unshard_finding *f)
{
	if (f->severity == UNSHARD_PROBLEM)
		c->counts.problems++;
	else if (f->severity == UNSHARD_NOTE)
		c->counts.notes++;
	else
		c->counts.unjudged++;
	return c->caller.calls.finding ? c->caller.calls.finding(c->caller.calls.ctx, f) : 0;
}

/* As trainers look for it, from where they are started; else beside the file that names it. */
static int read_named(struct config_check *c, const char *file, const char *name, cJSON **out, struct uns_err *why)
{
	const char *dir = c->dir, *beside;
	struct uns_span text;

	if (read_whole(c, name, &text, why) == 0)
		return config_parse(name, text, out, why);
	if (*name == '/')
		return why->code;
	*why = (struct uns_err){ 0 };
	beside = strrchr(file, '/') ? uns_arena_printf(&c->arena, "%s/%s", dir, name) : name;
	if (!beside)
		return uns_oom(why);
	UNS_TRY(read_whole(c, beside, &text, why));
	return config_parse(beside, text, out, why);
}

static int add_named(struct config_check *c, const char *file, const char **name, bool deepspeed, struct uns_err *err)
{
	struct unshard_finding f = finding_of(file, "named_file", UNSHARD_PROBLEM);
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	UNS_CLEANUP(uns_json_free_p) cJSON *json = NULL;
	const char *wanted = UNS_TAKE(*name);
	struct uns_err why = { 0 };

	if (!wanted)
		return 0;
	if (read_named(c, file, wanted, &json, &why) < 0) {
		uns_text_printf(&text, "it names %s, which cannot be read and is not checked: %s", wanted, why.text);
		f.text = text.p;
		return text.failed ? -ENOMEM : finding_report(c, &f);
	}
	if (deepspeed)
		return uns_settings_add(&c->settings, UNS_CONFIG_DEEPSPEED, json, &c->arena, err);
	uns_settings_add_fsdp(&c->settings, json);
	return 0;
}

static int config_add(struct config_check *c, const char *file, const char **kind, struct uns_err *err)
{
	const char *dir;
	int code;

	UNS_TRY(add_file(c, file, kind, err));
	dir = c->dir;
	code = add_named(c, file, &c->settings.fsdp_file, false, err);
	c->dir = dir;
	return code ? code : add_named(c, file, &c->settings.deepspeed_file, true, err);
}

/* -- rules -- */

static int verdict_report(struct config_check *c, const struct uns_setting_rule *rule, enum uns_rule_verdict verdict,
			  const char *file)
{
	UNS_CLEANUP(uns_text_fini) struct uns_text text = UNS_TEXT_INIT;
	struct unshard_finding f = finding_of(file, rule->name, UNSHARD_PROBLEM);
	const char *detail = rule->detail ? rule->detail(&c->settings) : NULL;

	if (verdict == UNS_RULE_NOTE)
		f.severity = UNSHARD_NOTE;
	if (verdict == UNS_RULE_UNJUDGED) {
		f.severity = UNSHARD_UNJUDGED;
		uns_text_printf(&text,
				"this depends on the version of %s, which is not known "
				"(name it with --versions %s=...): ",
				uns_package_name(rule->needs), uns_package_name(rule->needs));
	}
	uns_text_printf(&text, "%s%s%s", rule->sentence, detail ? ": " : "", detail ? detail : "");
	f.text = text.p;
	return text.failed ? -ENOMEM : finding_report(c, &f);
}

static int settings_judge(struct config_check *c, const char *file)
{
	enum uns_rule_verdict verdict;
	size_t i;
	int code = 0;

	for (i = 0; i < uns_n_setting_rules && code == 0; i++) {
		verdict = uns_setting_rules[i].judge(&c->settings);
		if (verdict != UNS_RULE_FINE)
			code = verdict_report(c, &uns_setting_rules[i], verdict, file);
	}
	return code;
}

static int check_configs(struct config_check *c, const char *const *files, size_t n, const char *versions,
			 const char **kinds, struct uns_err *err)
{
	size_t i;
	int code = 0;

	if (versions)
		UNS_TRY(uns_versions_parse(versions, c->settings.version, err));
	for (i = 0; i < n && code == 0; i++)
		code = config_add(c, files[i], kinds ? &kinds[i] : NULL, err);
	if (code)
		return code;
	if (c->settings.output_dir)
		UNS_TRY(output_dir_check(c->settings.output_dir, &c->arena, &c->settings.output_dir_why, err));
	return settings_judge(c, n == 1 ? files[0] : "");
}

int unshard_check_config(const char *const *files, size_t n, const char *versions, const struct unshard_calls *calls,
			 const char **kinds, struct unshard_check_counts *counts, struct unshard_error *error)
{
	struct config_check c = { .counts = CALLER_OWN(struct unshard_check_counts) };
	struct uns_err err = { 0 };
	int code = counts ? caller_give(counts, &c.counts, "check_counts", &err) : 0;

	if (code == 0)
		code = caller_init(&c.caller, calls, &err);
	if (code < 0)
		return give_error(error, &err, code);
	code = caller_fini(&c.caller, check_configs(&c, files, n, versions, kinds, &err));
	if (counts)
		caller_give(counts, &c.counts, "check_counts", &err);
	uns_arena_fini(&c.arena);
	return give_error(error, &err, code);
}
