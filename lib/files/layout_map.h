/* Which rank holds which part of which tensor, as one short JSON text: for pictures of a checkpoint. Pure. */
#ifndef UNS_FILES_LAYOUT_MAP_H
#define UNS_FILES_LAYOUT_MAP_H

#include "base/text.h"
#include "model/catalog.h"

/* {"files":[{"path","bytes","missing"}],
 *  "layouts":[[PIECE]],
 *  "tensors":[{"name","key","role","state","dtype","size","shape","group","alias_of","layout"}]}
 * PIECE: [rank, file, first of each dimension, length of each dimension], or [rank, file, first element, number of
 * elements] of the tensor in C order; rank -1 = not known, file: index of "files". Tensors that are cut alike share a
 * layout ("layout" is its index), so that the text grows with tensors plus kinds of cuts and not with their product.
 * "size": bytes of an element. A tensor without pieces has "layout" null. */
void uns_layout_map_print(struct uns_text *out, const struct uns_catalog *cat);

#endif
