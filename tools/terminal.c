/* Width of the terminal and of text, wrapping, colours. */
#include "terminal.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

enum { NARROWEST = 20, WIDEST = 1000 };

/* Of LC_CTYPE alone: numbers keep their decimal points. */
void terminal_begin(void)
{
	setlocale(LC_CTYPE, "C.UTF-8");
}

size_t terminal_width(FILE *to)
{
	const char *columns = getenv("COLUMNS");
	long n = columns ? strtol(columns, NULL, 10) : 0;
	struct winsize size;

	if (!isatty(fileno(to)))
		return 0;
	if (n <= 0)
		n = ioctl(fileno(to), TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col : TERMINAL_USUAL;
	return n < NARROWEST ? NARROWEST : n > WIDEST ? WIDEST : (size_t)n;
}

/* Of the character at `s`: its bytes, at least 1, and its columns. */
static size_t character(const char *s, size_t *columns)
{
	mbstate_t state = { 0 };
	wchar_t wide;
	size_t n = mbrtowc(&wide, s, strlen(s), &state);
	int w;

	*columns = 1;
	if (n == 0 || n > strlen(s))
		return 1;
	w = wcwidth(wide);
	*columns = w < 0 ? 1 : (size_t)w;
	return n;
}

size_t terminal_columns(const char *text)
{
	size_t n = 0, one;

	while (*text) {
		text += character(text, &one);
		n += one;
	}
	return n;
}

/* -- colours -- */

static bool shows_colours(FILE *to)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return isatty(fileno(to)) && !(no && *no) && term && *term && strcmp(term, "dumb") != 0;
}

const char *terminal_colour(FILE *to, enum colour colour)
{
	static const char *const escape[] = { "", "\033[1;31m", "\033[33m", "\033[2m" };

	return shows_colours(to) ? escape[colour] : "";
}

const char *terminal_plain(FILE *to, enum colour colour)
{
	return colour != COLOUR_NONE && shows_colours(to) ? "\033[0m" : "";
}

/* -- wrapping -- */

static void put(FILE *to, const char *text, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		fputc((unsigned char)text[i] < ' ' || text[i] == 0x7f ? '?' : text[i], to);
}

static size_t columns_of(const char *text, size_t n)
{
	size_t at = 0, all = 0, one;

	while (at < n) {
		at += character(text + at, &one);
		all += one;
	}
	return all;
}

static void new_line(FILE *to, size_t indent)
{
	fprintf(to, "\n%*s", (int)indent, "");
}

void terminal_wrap(FILE *to, const char *text, size_t width, size_t at, size_t indent)
{
	size_t column = at, n, spaces, columns;

	while (*text) {
		if (*text == '\n') {
			text++;
			if (*text == '\n' || !*text)
				fputc('\n', to);
			else
				new_line(to, indent);
			column = indent;
			continue;
		}
		spaces = strspn(text, " ");
		text += spaces;
		n = strcspn(text, " \n");
		columns = columns_of(text, n);
		if (width && column > indent && column + spaces + columns > width) {
			new_line(to, indent);
			column = indent;
			spaces = 0;
		}
		if (n) /* not at the end of a line */
			fprintf(to, "%*s", (int)spaces, "");
		put(to, text, n);
		column += spaces + columns;
		text += n;
	}
}

void terminal_finding(const char *text, const char *id, size_t at, size_t indent)
{
	const size_t n = strlen(text) + strlen(id) + sizeof(" []");
	char *whole = malloc(n);

	if (whole)
		snprintf(whole, n, "%s [%s]", text, id);
	terminal_wrap(stdout, whole ? whole : text, terminal_width(stdout), at, indent);
	putchar('\n');
	free(whole);
}
