/* Columns of a product's right matrix, in panels, with their norms. What is made of them stays in the cache: each read
 * of a tensor needs all of them. */
#ifndef UNS_ENGINE_RIGHT_FACTOR_H
#define UNS_ENGINE_RIGHT_FACTOR_H

#include "engine/panels.h"
#include "engine/sum_reader.h"
#include "model/sum_tensor.h"

enum { UNS_RIGHT_COLUMNS = 256, UNS_RIGHT_INNER = 256 };

/* Numbers of rows of a factor, as they lie: in words and as fp32. */
struct uns_rows {
	uns_word word[UNS_RIGHT_COLUMNS * UNS_RIGHT_INNER];
	float value[UNS_RIGHT_COLUMNS * UNS_RIGHT_INNER];
};

/* Sets `rows` to n rows of `inner` numbers, from `row` on: UNS_RIGHT_COLUMNS at most, of UNS_RIGHT_INNER at most. */
int uns_rows_read(const struct uns_sum_reader *reader, const struct uns_factor *factor, enum uns_panels_of of,
		  size_t inner, uint64_t row, size_t n, struct uns_rows *rows, struct uns_err *err);

/* Of a row, at least its norm. Infinite if that is so large that fp32 might overflow: a product with it is infinite. */
float uns_row_norm(const float *row, size_t inner);

struct uns_right {
	const uns_word *panel; /* one panel behind the other */
	float norm[UNS_RIGHT_COLUMNS]; /* uns_row_norm of each column */
	struct uns_cached *held; /* that has the panels; NULL = `own` has them */
	uns_word own[UNS_RIGHT_COLUMNS * UNS_RIGHT_INNER];
	struct uns_rows rows; /* what they are made of */
};

/* Sets `right` to columns [column, column+n) of the term's right matrix, of all those of all batches; n =
 * UNS_RIGHT_COLUMNS at most. Nothing may be read by `reader` until uns_right_put. */
int uns_right_get(const struct uns_catalog *cat, const struct uns_sum_reader *reader, const struct uns_term *term,
		  enum uns_panels_of of, uint64_t column, size_t n, struct uns_right *right, struct uns_err *err);
void uns_right_put(const struct uns_sum_reader *reader, struct uns_right *right);

#endif
