/* Decimal numbers as files spell them: with a point, whatever the program's locale has between the digits. Only
 * number.c reads or writes floating-point text: strtod and printf follow the locale. */
#ifndef UNS_BASE_NUMBER_H
#define UNS_BASE_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"

/* Enough for every double, with its NUL. */
#define UNS_NUMBER_ROOM 32

/* The whole span is one decimal number, which begins with a digit, a sign or a point. Hexadecimal numbers, "inf",
 * "nan", spaces and numbers too large for a double are none. */
bool uns_number_parse(struct uns_span text, double *out);

/* The digits of a number, at most 20, without a NUL. Returns how many they are. */
size_t uns_number_digits(char *text, uint64_t n);

/* As printf's %.*g in the C locale; digits: at most 17. Returns text. */
const char *uns_number_print(char text[UNS_NUMBER_ROOM], double value, int digits);

/* The fewest digits, from 15 on, that read as the same value again. Returns text. */
const char *uns_number_print_exact(char text[UNS_NUMBER_ROOM], double value);

#endif
