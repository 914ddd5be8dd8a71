/* Where the elements of a catalog's items lie, as bytes: what each item's header records, so that no reader of a memo
 * needs to read one.
 *
 *   u64 n           how many pieces the catalog has
 *   u64 n_runs      and how many runs of pieces that follow each other and whose elements lie at the same distance
 *   u32[n_runs]     behind each run, the number of pieces so far
 *   u64[n_runs]     0 = not known, or no item; else 1 + the distance from the item's first byte to the piece's first
 *                   element
 *   u32[n] or none  the CRC-32 that the item records for exactly the piece's bytes; 0 = none
 *
 * Little-endian, in the order of the catalog's pieces. An item is a piece that is a torch.save file and not compressed.
 * Nothing is copied per piece when they are imported: a place is looked up, and checked, when its piece is first read.
 */
#ifndef UNS_ENGINE_PLACES_H
#define UNS_ENGINE_PLACES_H

#include "base/span.h"
#include "base/text.h"
#include "engine/backing.h"
#include "engine/engine.h"

static inline bool uns_piece_is_item(const struct uns_piece *piece)
{
	return piece->container == UNS_TORCH_ITEM && piece->codec == UNS_CODEC_NONE;
}

/* In places_export.c. Reads every header that is not known yet, several at once, and appends all of them. Items whose
 * elements are in another order than C's, or cannot be read, are not known. -EINTR when `stop` (may be NULL) asks for
 * it. */
int uns_places_export(struct uns_backing *backing, const struct uns_stop *stop, struct uns_text *out,
		      struct uns_err *err);

/* -EBADMSG: these bytes do not fit the catalog: another number of pieces, or runs that do not follow each other. */
int uns_places_check(const struct uns_catalog *cat, struct uns_span in, struct uns_err *err);
/* Bytes that uns_places_check has accepted for the backing's catalog, which may have got more pieces since; before
 * anything is read. Copies them. */
int uns_places_import(struct uns_backing *backing, struct uns_span in, struct uns_err *err);

/* The place of piece number i. false: it is not known, or its elements would end behind their item: then its header
 * has to be read. O(log n). */
bool uns_places_find(const struct uns_backing *backing, size_t i, struct uns_location *out);

#endif
