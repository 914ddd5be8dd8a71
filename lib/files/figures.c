/* Figures printed. */
#include "files/figures.h"

void uns_figures_json(struct uns_text *out, const struct uns_figure *v, size_t n)
{
	size_t i;

	uns_text_printf(out, "{\n  \"version\": \"%s\"", UNSHARD_VERSION);
	for (i = 0; i < n; i++)
		uns_text_printf(out, ",\n  \"%s\": %llu", v[i].name,
				(unsigned long long)v[i].value);
	uns_text_str(out, "\n}\n");
}

void uns_figures_metrics(struct uns_text *out, const struct uns_figure *v, size_t n)
{
	const char *suffix;
	size_t i;

	for (i = 0; i < n; i++) {
		suffix = v[i].counter ? "_total" : "";
		uns_text_printf(out,
				"# HELP unshard_%s%s %s\n# TYPE unshard_%s%s %s\n"
				"unshard_%s%s %llu\n",
				v[i].name, suffix, v[i].help, v[i].name, suffix,
				v[i].counter ? "counter" : "gauge", v[i].name, suffix,
				(unsigned long long)v[i].value);
	}
}
