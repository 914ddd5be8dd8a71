/* Which of a view's files hold how much of which tensor, and under which names, as one short JSON text: for pictures of
 * a view. Pure. */
#ifndef UNS_FILES_TREE_MAP_H
#define UNS_FILES_TREE_MAP_H

#include "base/text.h"
#include "model/tree.h"

/* {"files":[{"path","bytes","list"}], "lists":[[tensor,bytes,tensor,bytes,...]],
 *  "names":[[tensor,number of names,first,last]]}
 * list: index of "lists": in the order of the file, how many bytes of it are elements of which tensor of the catalog
 * (of "tensors" of uns_layout_map_print); -1 = padding, -2 = a tensor that was made for the view. All else of a file is
 * headers. Files that are alike share a list; a file without elements, or one that
 * is shown unchanged, has null.
 * names: of a tensor of the catalog that the view's files of weights hold under another name, or cut into several. */
void uns_tree_map_print(struct uns_text *out, const struct uns_catalog *cat, const struct uns_vtree *tree);

#endif
