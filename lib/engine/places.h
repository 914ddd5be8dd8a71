/* Where the elements of a catalog's items lie, as bytes: what each item's header records, so that no reader of a memo
 * needs to read one.
 *
 *   u64 n           how many items there are (pieces that are torch.save items and not compressed)
 *   u64[n]          0 = not known; else 1 + the distance from the item's first byte to the piece's first element
 *   u32[n]          the CRC-32 that the item records for exactly the piece's bytes; 0 = none
 *
 * Little-endian, in the order of the catalog's pieces. */
#ifndef UNS_ENGINE_PLACES_H
#define UNS_ENGINE_PLACES_H

#include "base/span.h"
#include "engine/engine.h"

/* Reads every header that is not known yet, several at once, and appends all of them. Items whose elements are in
 * another order than C's, or cannot be read, are not known. -EINTR when `stop` (may be NULL) asks for it. */
int uns_places_export(struct uns_backing *backing, const struct uns_stop *stop, struct uns_text *out,
		      struct uns_err *err);

/* -EBADMSG: these bytes do not fit the catalog: another number of items, or elements that would end behind their item.
 */
int uns_places_check(const struct uns_catalog *cat, struct uns_span in, struct uns_err *err);
/* Bytes that uns_places_check has accepted for the backing's catalog; before anything is read. */
void uns_places_import(struct uns_backing *backing, struct uns_span in);

#endif
