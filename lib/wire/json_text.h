/* JSON as text: parts of it found and laid out without turning numbers into doubles and back, so that
 * what one program wrote another reads to the digit (1.0 stays 1.0, NaN stays NaN).
 *
 * All of these take text that uns_json_parse has accepted; on anything else they give less, never
 * more than the span. */
#ifndef UNS_WIRE_JSON_TEXT_H
#define UNS_WIRE_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/span.h"
#include "base/text.h"

/* The next member of an object, or element of an array: *at starts as the whole value and is
 * advanced. key (may be NULL) receives the key with its quotes, empty in an array. false at the end. */
bool uns_json_text_next(struct uns_span *at, struct uns_span *key, struct uns_span *value);

/* The value of a key; of equal keys the last counts, as in Python. */
bool uns_json_text_get(struct uns_span object, const char *key, struct uns_span *value);

/* As json.dumps(value, indent=2, sort_keys=True) lays it out, `depth` levels in. */
void uns_json_text_indent(struct uns_text *out, struct uns_span value, unsigned depth);

/* How many brackets are open at once at most. */
size_t uns_json_text_depth(struct uns_span value);

/* Spelled as an integer ("2", not "2.0") that fits. */
bool uns_json_text_int(struct uns_span value, int64_t *out);

#endif
