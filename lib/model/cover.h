/* The proof that a tensor can be served without wrong bytes: its pieces cover every element exactly once, and every
 * byte that they need exists. Also what pieces have in common with each other and with stretches. */
#ifndef UNS_MODEL_COVER_H
#define UNS_MODEL_COVER_H

#include "model/catalog.h"

/* The elements of a piece as stretches of its tensor; a range is one stretch. */
struct uns_stretches uns_stretches_of_piece(const struct uns_shape *shape, const struct uns_piece *piece);
/* The one range of flat elements that a piece is; false where it is several. */
bool uns_piece_range(const struct uns_shape *shape, const struct uns_piece *piece, struct uns_range *out);
/* Both pieces hold the same elements of equally shaped tensors. */
bool uns_same_elements(const struct uns_piece *a, const struct uns_piece *b);

/* 0, or fails with a finding: missing file or rank (-ENODATA), file too short (-EBADMSG, expected and found
 * sizes), overlap or hole (-EBADMSG, with the first offending elements).
 * Replicas (pieces with equal box or range) are allowed: the first is used, the rest must have equal
 * length. Pure: reads no data. O(p log p) for p pieces that do not interleave. */
int uns_cover_check(const struct uns_catalog *cat, const struct uns_tensor *tensor, struct uns_err *err);

/* Nothing but what is simplest: pieces in order of position, each with elements, sound and with bytes that exist, and
 * no two of the same elements. Of a catalog that is not sealed yet too. */
bool uns_cover_is_plain(const struct uns_catalog *cat, const struct uns_tensor *tensor);

/* Adds what is wrong with each file that a view would read and that is missing or too short: uns_cover_check stops at
 * the first. The first tensor of the model or its optimizer that lacks a piece there is named. Fails with -ENOMEM
 * alone. O(pieces). */
int uns_cover_files(const struct uns_catalog *cat, struct uns_findings *out, struct uns_arena *arena,
		    struct uns_err *err);

/* Fails with the first of the catalog's own findings that keeps `scope` from being served; 0 when there is none. */
int uns_cover_refusal(const struct uns_catalog *cat, enum uns_scope scope, struct uns_err *why);

/* The whole model can be served: there are weights (-ENOTSUP), no known problem keeps them from it, and
 * each is covered. */
int uns_cover_weights(const struct uns_catalog *cat, struct uns_err *why);

#endif
