/* The pieces of a packed catalog's tensors, of which there may be millions.
 *
 *   n_pieces of all tensors; then of each tensor:
 *   n               how many pieces it has; nothing follows 0
 *   like            0, or how many tensors before this one is one that was cut alike: into as many pieces, each the
 *                   same box as here. Such boxes are not written again
 *   six columns     what each piece is (kind, container, codec, whether more follows), its file, rank, length, offset
 *                   and CRC: by how much more than in the piece of the same place of `like`, or else than in the piece
 *                   before (files and ranks: than that plus 1). As runs of equal numbers: the number, the run's length
 *                   minus 1
 *   ranges, boxes   without `like`, of each piece
 *   strides, parts  of each piece that has some
 *
 * Of a model on 512 ranks, layers are cut alike: a tensor's 512 pieces are a few runs, and are checked by numbers
 * alone, because that their boxes cover the tensor was proven for the first. */
#ifndef UNS_MODEL_PACK_PIECES_H
#define UNS_MODEL_PACK_PIECES_H

#include "model/pack.h"

/* Before and behind the tensors: n pieces in all. While reading, makes room for them. */
int pack_pieces_begin(struct pack *p, size_t n, struct uns_err *err);
int pack_pieces_end(struct pack *p, struct uns_err *err);

/* Those of tensor number i, which while reading is the last, and has none yet. */
int pack_pieces(struct pack *p, size_t i, struct uns_err *err);

#endif
