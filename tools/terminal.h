/* The terminal that a command prints to: how wide it is, how wide a text is in it, and whether it shows colours. */
#ifndef TOOLS_TERMINAL_H
#define TOOLS_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { TERMINAL_USUAL = 80 };

/* Wide characters are counted from here on. Call once, before the first output. */
void terminal_begin(void);

/* Columns: $COLUMNS, else what the terminal reports; 0 = `to` is no terminal: programs get whole lines. */
size_t terminal_width(FILE *to);

/* Columns that a text takes: a wide character two, a combining one none, a byte that is no UTF-8 one. */
size_t terminal_columns(const char *text);

enum colour { COLOUR_NONE, COLOUR_BAD, COLOUR_UNSURE, COLOUR_DIM };

/* Escapes around a text; "" where `to` shows no colours: no terminal, NO_COLOR is set, TERM=dumb. */
const char *terminal_colour(FILE *to, enum colour colour);
const char *terminal_plain(FILE *to, enum colour colour);

/* Print a text in lines of at most `width` columns, of which the first begins in column `at`, where the cursor is, and
 * all others in column `indent`. Words that are longer than a line are not cut. A newline in the text ends a line.
 * width 0 = no wrapping. Control characters become '?'. Ends without a newline. */
void terminal_wrap(FILE *to, const char *text, size_t width, size_t at, size_t indent);

/* The same for a finding: its sentence, and its id behind it in brackets. Ends the line. */
void terminal_finding(const char *text, const char *id, size_t at, size_t indent);

#endif
