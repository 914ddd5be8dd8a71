/* See versions.h. */
#include "check/versions.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[UNS_N_PACKAGES] = {
	[UNS_TRANSFORMERS] = "transformers", [UNS_ACCELERATE] = "accelerate", [UNS_LIGHTNING] = "lightning",
	[UNS_DEEPSPEED] = "deepspeed",       [UNS_TORCH] = "torch",
};

const char *uns_package_name(enum uns_package package)
{
	return names[package];
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* "4.50.0.dev0", "2.6.0+cu124", "2.13": up to three numbers, then what shows whether it is early. */
static bool parse_version(const char *s, size_t len, struct uns_version *out)
{
	const char *end = s + len;
	struct uns_version v = { .known = true };
	size_t i;

	if (s < end && *s == 'v')
		s++;
	for (i = 0; i < 3 && s < end && is_digit(*s); i++) {
		for (; s < end && is_digit(*s); s++) {
			if (v.part[i] > 100000)
				return false;
			v.part[i] = v.part[i] * 10 + (unsigned)(*s - '0');
		}
		if (end - s >= 2 && *s == '.' && is_digit(s[1]) && i < 2)
			s++;
	}
	if (i == 0)
		return false;
	if (s < end && *s == '.')
		s++;
	v.early = s < end && (*s == 'd' || *s == 'r' || *s == 'a' || *s == 'b');
	*out = v;
	return true;
}

static int parse_one(const char *text, size_t len, struct uns_version *v, struct uns_err *err)
{
	static const char *const former = "pytorch-lightning";
	const char *equals = memchr(text, '=', len), *version;
	const size_t n = equals ? (size_t)(equals - text) : 0;
	int package = UNS_N_PACKAGES;

	while (--package >= 0 && (strlen(names[package]) != n || strncmp(names[package], text, n) != 0))
		;
	if (n == strlen(former) && strncmp(text, former, n) == 0)
		package = UNS_LIGHTNING;
	if (package < 0)
		return uns_fail(err, -EINVAL,
				"versions: '%.*s' is not PACKAGE=VERSION of transformers, "
				"accelerate, lightning, deepspeed or torch",
				(int)(len < 100 ? len : 100), text);
	version = equals + 1 + (equals + 1 < text + len && equals[1] == '=');
	if (!parse_version(version, (size_t)(text + len - version), &v[package]))
		return uns_fail(err, -EINVAL, "versions: '%.*s' has no version", (int)(len < 100 ? len : 100), text);
	return 0;
}

int uns_versions_parse(const char *text, struct uns_version *v, struct uns_err *err)
{
	size_t len;

	for (; *text; text += len + (text[len] == ',')) {
		len = strcspn(text, ",");
		UNS_TRY(parse_one(text, len, v, err));
	}
	return 0;
}

bool uns_version_before(const struct uns_version *v, unsigned a, unsigned b, unsigned c)
{
	const unsigned than[3] = { a, b, c };
	size_t i;

	if (!v->known)
		return false;
	for (i = 0; i < 3; i++)
		if (v->part[i] != than[i])
			return v->part[i] < than[i];
	return v->early;
}
